"""Connectors for files and object stores."""
