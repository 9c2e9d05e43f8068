"""Opening a log after a clean or an unclean shutdown."""
