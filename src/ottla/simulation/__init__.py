"""A world in one process that fails on purpose, and the same way for the same seed."""
