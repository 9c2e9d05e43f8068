"""A broker's part in a multi-broker cluster: as a client of the controller, and as controller."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from ottla.broker.controller.controlled_shutdown import ControlledShutdown
from ottla.broker.controller.controller_client import NO_CONTROLLER, ActiveController
from ottla.broker.controller.controller_connection import ChannelToController
from ottla.broker.controller.metadata_log_client import ControllerMetadata
from ottla.broker.controller.metadata_log_server import MetadataFetch
from ottla.broker.controller.metadata_propagation import PropagationBarrier, Spread
from ottla.broker.controller.metadata_snapshot_cache import MetadataSnapshots
from ottla.broker.metadata_store.metadata_history import MetadataFeed
from ottla.broker.metadata_store.store import MetadataStore
from ottla.concurrency.notifier import Notifier
from ottla.environment.clock import Clock
from ottla.environment.network import Network


class Term(Protocol):
    """The time in which a broker is the controller."""

    @property
    def feed(self) -> MetadataFeed:
        """The decisions of the term."""
        ...


class ClusterStore(MetadataStore, Protocol):
    """A metadata store that every broker has, with one broker that decides."""

    broker_epoch: int

    @property
    def term(self) -> Term | None:
        """The term of this broker, while it is the controller."""
        ...

    @property
    def is_session_confirmed(self) -> bool:
        """Whether no other broker can have taken this broker for dead yet."""
        ...


@dataclass(frozen=True, slots=True)
class Cluster:
    """The components of a broker in a multi-broker cluster."""

    controller: ActiveController
    channel: ChannelToController
    feed: Callable[[], MetadataFeed | None]
    """This broker's decisions, while it is the controller."""
    snapshots: MetadataSnapshots
    metadata_fetch: MetadataFetch
    controlled_shutdown: ControlledShutdown
    spread: Spread
    has_valid_lease: Callable[[], bool]
    """Whether this broker certainly still leads its partitions."""

    @classmethod
    def of(
        cls,
        broker_id: int,
        store: ClusterStore,
        source: ControllerMetadata,
        network: Network,
        clock: Clock,
        notifier: Notifier,
        threads: Executor | None,
    ) -> "Cluster":
        """Create all parts; requests for the controller go to the source's broker."""

        def feed() -> MetadataFeed | None:
            return None if store.term is None else store.term.feed

        def followed() -> int:
            return NO_CONTROLLER if source.controller is None else source.controller.broker_id

        channel = ChannelToController(broker_id, network, lambda: source.endpoint)
        source.on_controller(channel.look_again)
        snapshots = MetadataSnapshots(threads)
        fetch = MetadataFetch(broker_id, feed, snapshots, notifier)
        return cls(
            controller=ActiveController(
                broker_id,
                lambda: store.broker_epoch,
                store,
                clock,
                channel,
                lambda: store.term is not None,
                followed,
            ),
            channel=channel,
            feed=feed,
            snapshots=snapshots,
            metadata_fetch=fetch,
            controlled_shutdown=ControlledShutdown(broker_id, store, lambda: fetch.fetched),
            spread=PropagationBarrier(broker_id, feed, fetch, clock, notifier).spread,
            has_valid_lease=lambda: store.is_session_confirmed,
        )
