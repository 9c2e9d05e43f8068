"""A broker's part in a multi-broker cluster: as a client of the controller, and as controller."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla.broker.controller.controller_client import NO_CONTROLLER, ActiveController
from ottla.broker.controller.controller_connection import ChannelToController
from ottla.broker.controller.metadata_log_client import ControllerMetadata
from ottla.broker.controller.metadata_log_server import MetadataFetch, MetadataSnapshots
from ottla.broker.controller.metadata_propagation import PropagationBarrier, Spread
from ottla.broker.metadata_store.metadata_history import MetadataFeed
from ottla.broker.metadata_store.store import MetadataStore
from ottla.concurrency.notifier import Notifier
from ottla.environment.clock import Clock
from ottla.environment.network import Network
from ottla.machines.controller.brokers import check_broker_epoch
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.records import MetadataRecord
from ottla.model.identifiers import BrokerId, Offset


class _Departure(NamedTuple):
    broker_epoch: int
    end_offset: Offset
    """A broker that has applied the metadata up to this offset knows the new leaders."""


class _Decided(NamedTuple):
    end_offset: Offset
    has_moved: bool
    """Whether others lead by this very decision."""
    others: list[BrokerId]
    """The brokers that must learn of it."""


class ControlledShutdown:
    """Brokers that are about to stop: the controller lets others lead before they go.

    Belongs to one event loop.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        store: MetadataStore,
        fetched: Callable[[], Mapping[BrokerId, int]],
    ) -> None:
        self._broker_id = broker_id
        self._store = store
        self._fetched = fetched
        self._controlled_shutdown: dict[BrokerId, _Departure] = {}

    async def grant(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        """Move a broker's leaderships; return whether all brokers know, so that it may stop.

        ApiError STALE_BROKER_EPOCH, NOT_CONTROLLER.
        """

        def decide(controller: Controller) -> Decision[MetadataRecord, _Decided]:
            check_broker_epoch(controller.image, broker_id, broker_epoch)
            records = controller.shut_down_broker(broker_id).records
            end_offset = controller.image.end_offset + len(records)
            others = [
                one.broker_id
                for one in controller.image.brokers.values()
                if one.is_active and one.broker_id not in {broker_id, self._broker_id}
            ]
            return Decision(records, _Decided(Offset(end_offset), bool(records), others))

        decided = await self._store.execute(decide)
        departure = self._controlled_shutdown.get(broker_id)
        if departure is None or departure.broker_epoch != broker_epoch or decided.has_moved:
            departure = _Departure(broker_epoch, decided.end_offset)
            self._controlled_shutdown[broker_id] = departure
        fetched = self._fetched()
        return all(fetched.get(one, 0) >= departure.end_offset for one in decided.others)


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

    @classmethod
    def of(
        cls,
        broker_id: BrokerId,
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
        )
