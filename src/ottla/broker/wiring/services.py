"""The dependencies of a broker's handlers."""

from concurrent.futures import Executor
from dataclasses import dataclass

from ottla.broker.controller.cluster_membership import Cluster
from ottla.broker.controller.controller_client import ActiveController
from ottla.broker.controller.topic_creation import TopicCreation
from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.coordinators.transaction_services import Transactions
from ottla.broker.coordinators.transaction_verification import TransactionVerification
from ottla.broker.describing.metadata_view import ClusterView
from ottla.broker.hosting.hosted_partitions import Partitions
from ottla.broker.hosting.live_config import LiveConfig
from ottla.broker.hosting.log_flusher import Flushing
from ottla.broker.hosting.partition_log_dirs import PartitionFolders
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.metrics.request_metrics import Meters
from ottla.broker.replication.log_dir_moves import ReplicaMoves
from ottla.broker.replication.replication_quotas import Throttles
from ottla.broker.requests.time_slices import TimeSlices
from ottla.concurrency.notifier import Notifier
from ottla.environment.clock import Clock
from ottla.environment.disk import Disk
from ottla.environment.randomness import Randomness
from ottla.model.settings.broker_config import BrokerConfig


@dataclass(frozen=True, slots=True)
class Services:
    """One of each, made by the assembly and shared by all handlers."""

    config: BrokerConfig
    """The settings at start."""
    live_config: LiveConfig
    clock: Clock
    slices: TimeSlices
    randomness: Randomness
    disk: Disk
    store: MetadataStore
    partitions: Partitions
    notifier: Notifier
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
    """The parts that only a broker in a cluster needs."""
