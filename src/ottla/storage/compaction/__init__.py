"""The log cleaner: plan, clean, swap."""
