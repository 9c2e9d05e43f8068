"""The interface between a broker and its metadata, wherever that is kept."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from ottla.broker.controller.controller_client import ActiveController
from ottla.broker.controller.metadata_log_server import MetadataFetch
from ottla.broker.controller.metadata_propagation import Spread
from ottla.broker.hosting.metadata_applier import MetadataApplier
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.routes import Route, Routes
from ottla.metadata.image import BrokerImage


class MetadataMode(Protocol):
    """The broker's interface to its metadata. Belongs to one event loop."""

    @property
    def store(self) -> MetadataStore:
        """The metadata."""
        ...

    @property
    def controller(self) -> ActiveController:
        """The client of the controller."""
        ...

    @property
    def has_valid_lease(self) -> Callable[[], bool]:
        """Whether this broker certainly still leads its partitions."""
        ...

    @property
    def spread(self) -> Spread:
        """Waits until other brokers have applied a decision of this broker."""
        ...

    @property
    def metadata_fetch(self) -> MetadataFetch | None:
        """Answers fetches of the metadata by other brokers on a listener for clients, if any."""
        ...

    @property
    def is_alone(self) -> bool:
        """Whether there are no other brokers, and never will be."""
        ...

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version, which the quorum keeps; 0 without a quorum."""
        ...

    @property
    def directory_ids(self) -> tuple[bytes, ...]:
        """The ids of the usable log dirs, in their order."""
        ...

    @property
    def broker_epoch(self) -> int:
        """The epoch of this incarnation of the broker, once it is registered."""
        ...

    @property
    def may_leave_cleanly(self) -> bool:
        """Whether the cluster knows of all lost tails: a clean-shutdown marker would hide them."""
        ...

    async def follow_with(self, follower: MetadataApplier) -> None:
        """Return when the logs are open; follow the metadata from then on."""
        ...

    async def register(self, broker: BrokerImage) -> None:
        """Return when the broker is one of the cluster, and its logs lead and follow."""
        ...

    def routes(self, here: Routes) -> dict[int, Route]:
        """Return the whole table, given the routes that every broker has."""
        ...

    async def serve_until(self, stopping: asyncio.Event) -> None:
        """Wait until the broker is to stop; raise if it cannot continue before that."""
        ...

    async def depart(self) -> None:
        """Hand over leadership before this broker stops."""
        ...

    async def close(self) -> None:
        """Decide and follow nothing any more."""
        ...
