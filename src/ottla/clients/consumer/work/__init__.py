"""What ordered workers stand on: which record may start, what is done, what becomes of failures."""
