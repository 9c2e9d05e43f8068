"""Clients: connections to brokers, and what can be asked of a cluster through them."""
