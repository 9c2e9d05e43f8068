"""Synchronous clients: a thread with an event loop and the facade in front of it."""
