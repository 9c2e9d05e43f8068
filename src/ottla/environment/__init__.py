"""The outside world as interfaces: what a machine gives us, and what it promises."""
