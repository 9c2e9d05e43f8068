"""Requests to brokers: connections, frames, fetch sessions, and fetches of one partition."""
