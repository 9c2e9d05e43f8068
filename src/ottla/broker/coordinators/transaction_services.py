"""The broker's part in transactions: coordinating, verifying and writing markers."""

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from ottla.broker.coordinators.coordinator_log import CoordinatorLog
from ottla.broker.coordinators.coordinator_runtime import CoordinatorWorld
from ottla.broker.coordinators.marker_sender import MarkerSender
from ottla.broker.coordinators.marker_writer import MarkerReader, MarkerWriter
from ottla.broker.coordinators.partition_enlistment import PartitionEnlistment
from ottla.broker.coordinators.producer_id_allocator import ProducerIds
from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.broker.coordinators.transaction_state_topic import TransactionStateTopic
from ottla.broker.peers.broker_clients import BrokerClients, PeersWorld
from ottla.machines.transactions.settings import TransactionSettings
from ottla.model.settings.broker_config import BrokerConfig
from ottla.wire.coordinator_records.codec import TRANSACTION_STATE, RecordCodec
from ottla.wire.records.compression.codecs import Compression


@dataclass(frozen=True, slots=True)
class TransactionServices:
    """One of each. Belongs to one event loop."""

    coordinator: TransactionCoordinator
    markers: MarkerSender
    channel: PartitionEnlistment
    producer_ids: ProducerIds
    writing: MarkerWriter

    @classmethod
    def open(
        cls,
        config: BrokerConfig,
        world: CoordinatorWorld,
        peers: PeersWorld,
        threads: Executor,
        readers: Mapping[str, MarkerReader],
        *,
        is_alone: bool,
    ) -> "TransactionServices":
        """Begin to load the transactions that are kept here, and to follow the metadata."""
        store = world.creation.store
        producer_ids = ProducerIds(world.creation.controller.allocate_producer_ids)
        # Markers wait for replicas; requests of partitions must not wait for them.
        writing = MarkerWriter(world.partitions, world.clock, world.has_valid_lease, readers)
        of_markers, of_partitions = (
            BrokerClients(peers, "markers"),
            BrokerClients(peers, "transactions"),
        )
        markers = MarkerSender(of_markers, peers.image, writing)
        codec = RecordCodec(TRANSACTION_STATE)
        coordinator = TransactionCoordinator(
            world,
            TransactionSettings.from_config(config),
            _topic(config, is_alone=is_alone),
            CoordinatorLog(codec, world.clock, threads, Compression.NONE),
            markers,
            producer_ids,
        )
        channel = PartitionEnlistment(
            coordinator.index_of, coordinator.enlist, of_partitions, peers.image
        )
        for follower in (of_markers, of_partitions, coordinator, markers):
            store.subscribe(follower.on_change)
        coordinator.open_if_there()
        return cls(coordinator, markers, channel, producer_ids, writing)

    def stop(self) -> None:
        """Coordinate nothing any more."""
        self.coordinator.stop()
        self.markers.stop()
        self.channel.stop()


def _topic(config: BrokerConfig, *, is_alone: bool) -> TransactionStateTopic:
    return TransactionStateTopic(
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_segment_bytes,
        1 if is_alone else config.transaction_state_log_replication_factor,
        1 if is_alone else config.transaction_state_log_min_isr,
    )
