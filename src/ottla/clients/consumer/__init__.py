"""Consumers: fetching, group membership and ordered workers."""
