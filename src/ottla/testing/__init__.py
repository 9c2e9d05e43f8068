"""A real broker for people's own tests.

with ottla.testing.Broker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

The broker is imported when it is asked for, because pytest imports this package in every run.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> Any:
    if name != "Broker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ottla.testing.broker import Broker  # noqa: PLC0415

    return Broker
