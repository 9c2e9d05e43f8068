"""Periodic work: retention, the log cleaner, expiration."""
