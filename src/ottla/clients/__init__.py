"""Clients: connections to brokers, producers, consumers and the admin client."""
