"""Assignors: how the leader of a classic group distributes the partitions."""
