"""Declarations of connectors: reading them and checking them."""
