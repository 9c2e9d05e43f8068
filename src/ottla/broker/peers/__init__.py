"""Clients of other brokers."""
