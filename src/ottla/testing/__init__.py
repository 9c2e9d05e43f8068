"""A real broker for people's own tests.

with ottla.testing.Broker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
"""

from ottla.testing.broker import Broker

__all__ = ["Broker"]
