"""Sends lists and tables in one call."""
