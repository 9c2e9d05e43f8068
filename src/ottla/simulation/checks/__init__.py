"""Invariants, the checkers of client histories and the models that they compare with."""
