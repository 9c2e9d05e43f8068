"""A server on top of a broker, in the same process.

Its package is in a layer above the broker's, so `Broker.start` gets it as a callable. It binds its
port before the broker registers, so that the registration publishes the address to other brokers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ottla.broker.controller.topic_creation import TopicCreation
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.hosting.log_flusher import LogFlusher
from ottla.broker.metadata_store.image_publisher import OnChange
from ottla.broker.peers.broker_clients import PeersWorld
from ottla.concurrency.notifier import Notifier
from ottla.environment.clock import Clock
from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.listeners import Listener


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """The parts of a running broker for a service. All of them belong to the broker's loop."""

    loop: asyncio.AbstractEventLoop
    config: BrokerConfig
    partitions: HostedPartitions
    notifier: Notifier
    flushing: LogFlusher
    clock: Clock
    threads: Executor
    creation: TopicCreation
    peers: PeersWorld
    subscribe: Callable[[OnChange], None]
    """Calls a function on the broker's loop for every later image of the metadata."""
    has_valid_lease: Callable[[], bool]
    """Whether this broker certainly still leads its partitions."""


class BrokerService(Protocol):
    """A server in the process of a broker. Its methods belong to the broker's event loop."""

    @property
    def advertised(self) -> Listener | None:
        """The endpoint to register, such as REGISTRY_ENDPOINT; None for no endpoint."""
        ...

    def begin(self, broker: BrokerAccess) -> None:
        """Serve: clients can connect to the broker now. Returns at once."""
        ...

    async def close(self) -> None:
        """Stop serving; the broker still runs. Has no effect before `begin` or a second time."""
        ...


OpenService: TypeAlias = Callable[[BrokerConfig, str], Awaitable[BrokerService]]
"""Binds the port of a service: takes the settings and the name of this machine. OSError if a
configured port cannot be bound."""


class NoService:
    """A broker without a service."""

    advertised: Listener | None = None

    def begin(self, broker: BrokerAccess) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


async def no_service(_config: BrokerConfig, _host_name: str) -> NoService:  # noqa: RUF029 - a stand-in
    """Open no service."""
    return NoService()
