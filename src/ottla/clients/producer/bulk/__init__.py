"""Lists and tables sent with one call."""
