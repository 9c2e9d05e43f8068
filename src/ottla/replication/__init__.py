"""Partitions with replicas: who leads, how far everybody is, and what may be seen."""
