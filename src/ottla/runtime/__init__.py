"""Implements `ottla.environment` with the kernel."""
