"""Partitions with replicas: leader, progress of followers, and visible offsets."""
