"""Which handler answers which API: one row each, in one file for each family."""
