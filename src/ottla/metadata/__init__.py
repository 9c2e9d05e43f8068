"""Cluster metadata: the records, and the image that they add up to."""
