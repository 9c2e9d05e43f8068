"""Pipelines as processes: run, listed, looked at and stopped."""
