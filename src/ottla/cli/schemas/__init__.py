"""Schemas in files and in the registry: sources, checks, evolution, inference, records."""
