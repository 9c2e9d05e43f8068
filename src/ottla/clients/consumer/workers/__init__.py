"""Ordered workers: records are processed concurrently, in order per key or partition."""
