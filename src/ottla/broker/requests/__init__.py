"""What a handler is given, and the table that finds it."""
