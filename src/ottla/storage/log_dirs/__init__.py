"""Log directories and the logs in them."""
