"""Faults in the simulated world and the moments at which they happen."""
