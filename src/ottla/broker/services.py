"""What the handlers of one broker are made from."""

from concurrent.futures import Executor
from dataclasses import dataclass

from ottla.broker.active_controller import ActiveController
from ottla.broker.bells import Bells
from ottla.broker.cluster import Cluster
from ottla.broker.cluster_view import ClusterView
from ottla.broker.flushing import Flushing
from ottla.broker.group_coordinator import GroupCoordinator
from ottla.broker.live_config import LiveConfig
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.metrics.meters import Meters
from ottla.broker.partition_folders import PartitionFolders
from ottla.broker.partitions import Partitions
from ottla.broker.replica_moves import ReplicaMoves
from ottla.broker.replication_throttle import Throttles
from ottla.broker.time_slices import TimeSlices
from ottla.broker.topic_creation import TopicCreation
from ottla.broker.transaction_verification import TransactionVerification
from ottla.broker.transactions import Transactions
from ottla.environment.clock import Clock
from ottla.environment.disk import Disk
from ottla.environment.randomness import Randomness
from ottla.model.settings.broker_config import BrokerConfig


@dataclass(frozen=True, slots=True)
class Services:
    """One of each, made by the assembly and shared by all handlers."""

    config: BrokerConfig
    """What the broker was started with."""
    live_config: LiveConfig
    clock: Clock
    slices: TimeSlices
    randomness: Randomness
    disk: Disk
    store: MetadataStore
    partitions: Partitions
    bells: Bells
    threads: Executor
    flushing: Flushing
    throttles: Throttles
    creation: TopicCreation
    view: ClusterView
    folders: PartitionFolders
    moves: ReplicaMoves
    coordinator: GroupCoordinator
    meters: Meters
    controller: ActiveController
    transactions: Transactions
    verification: TransactionVerification
    cluster: Cluster | None = None
    """What a broker needs that is not alone."""
