"""The handler of each API: one row each, in one file for each family."""
