"""Clients of a schema registry, and serializers of values that have a schema."""
