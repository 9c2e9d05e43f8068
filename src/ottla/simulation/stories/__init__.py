"""Whole simulated runs: one broker or a cluster, under faults, with a verdict."""
