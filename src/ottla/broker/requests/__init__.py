"""The context of requests, and the table of routes."""
