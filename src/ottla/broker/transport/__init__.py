"""Listeners, connections, frames and responses."""
