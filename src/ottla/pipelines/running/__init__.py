"""Runs pipelines as processes; lists, inspects and stops them."""
