"""Copies topics from one cluster to another: batches unchanged, with offsets and groups."""
