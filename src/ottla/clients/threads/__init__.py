"""Synchronous clients: an event loop in a thread, and facades for it."""
