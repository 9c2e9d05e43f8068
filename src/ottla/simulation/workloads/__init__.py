"""Simulated clients that record their operations."""
