"""One file per noun of the command line."""
