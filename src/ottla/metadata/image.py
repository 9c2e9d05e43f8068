"""The content of the metadata log up to an offset: everything that a broker knows of its cluster.

An image never changes; replaying records makes a new image, which shares all unchanged parts. So a
request that holds an image sees one state of the cluster until its end, however often it waits.
The mappings are plain dicts for speed; only `replay` makes them, and nothing changes them
afterwards.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.metadata.metadata_version import METADATA_VERSION_FEATURE, NEWEST_METADATA_VERSION
from ottla.metadata.records import NO_LEADER, MetadataRecord
from ottla.model.identifiers import FIRST_OFFSET, BrokerId, LeaderEpoch, Offset, ProducerId


class ResourceType(IntEnum):
    """The resources with stored settings, by the protocol's numbers."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """One thing that has settings. The broker without a name stands for all brokers."""

    kind: ResourceType
    name: str


_FIRST_EPOCH: Final = LeaderEpoch(0)
_FIRST_PRODUCER_ID: Final = ProducerId(0)
EVERY_BROKER = ConfigResource(ResourceType.BROKER, "")


KeptKey = tuple[Hashable, ...]
"""The kind of a kept record, and its key among the records of that kind."""


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """A partition: replicas, leader and ISR."""

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId = NO_LEADER
    leader_epoch: LeaderEpoch = _FIRST_EPOCH
    partition_epoch: int = 0
    """Increases with every change; an AlterPartition request must name the current epoch."""
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    directories: tuple[bytes, ...] = ()
    """The directory of each replica; none if the record did not tell."""
    leader_recovery_state: int = 0
    """1 while a leader that was not in sync is recovering."""
    eligible_leader_replicas: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic. A partition's number is its place among the partitions."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionImage, ...] = ()

    def partition(self, number: int) -> PartitionImage | None:
        """Return a partition, or None where a client made its number up."""
        return self.partitions[number] if 0 <= number < len(self.partitions) else None


class Endpoint(NamedTuple):
    """Where a broker listens."""

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One broker as it registered. A fenced one does not serve clients."""

    broker_id: BrokerId
    broker_epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    is_fenced: bool = False
    is_shutting_down: bool = False
    log_dirs: tuple[bytes, ...] = ()
    levels_by_feature: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The first and the last level of each feature that it can do."""
    cordoned_log_dirs: tuple[bytes, ...] = ()
    """The directories that get no new replicas."""
    is_in_zookeeper: bool = False
    """Whether its session is in ZooKeeper, during a migration to a quorum."""

    @property
    def is_active(self) -> bool:
        """Whether it may lead and be in sync."""
        return not self.is_fenced and not self.is_shutting_down

    @property
    def is_cordoned(self) -> bool:
        """Whether none of its log dirs takes new replicas (KIP-1066)."""
        return bool(self.log_dirs) and set(self.log_dirs) <= set(self.cordoned_log_dirs)

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return where it listens under the name of this listener."""
        return next((one for one in self.endpoints if one.name == listener), None)


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """One controller as it registered."""

    controller_id: BrokerId
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    levels_by_feature: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    is_zk_migration_ready: bool = False


class ZkMigrationState(IntEnum):
    """How far a migration from ZooKeeper to a quorum is, by Kafka's numbers (KIP-866)."""

    NONE = 0
    """The cluster never had its metadata in ZooKeeper, or the log has nothing of it yet."""
    PRE_MIGRATION = 1
    MIGRATION = 2
    """The log is a copy, and every decision is written to ZooKeeper first."""
    POST_MIGRATION = 3
    """Finalized: ZooKeeper is not written any more."""


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The whole cluster."""

    cluster_id: str
    end_offset: Offset = FIRST_OFFSET
    """The first offset of the metadata log that is not in here."""
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=dict)
    topic_name_by_folded: Mapping[str, str] = field(default_factory=dict)
    """The topics that other names can clash with (`model.topic_names`)."""
    partition_count: int = 0
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    """Settings by dotted name; resources without settings are absent."""
    brokers: Mapping[BrokerId, BrokerImage] = field(default_factory=dict)
    level_by_feature: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: ProducerId = _FIRST_PRODUCER_ID
    controllers: Mapping[BrokerId, ControllerImage] = field(default_factory=dict)
    kept_records: Mapping[KeptKey, MetadataRecord] = field(default_factory=dict)
    """Quotas, ACLs, SCRAM credentials and delegation tokens: kept for snapshots, without use."""
    zk_migration_state: int = ZkMigrationState.NONE

    @property
    def metadata_version(self) -> int:
        """The level that records are written at; the newest if none is finalized yet."""
        return self.level_by_feature.get(METADATA_VERSION_FEATURE, NEWEST_METADATA_VERSION)

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """Return the settings of a topic; none if it does not exist."""
        return self.configs.get(ConfigResource(ResourceType.TOPIC, topic), _NO_SETTINGS)

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        """Return the settings of a group."""
        return self.configs.get(ConfigResource(ResourceType.GROUP, group_id), _NO_SETTINGS)

    def broker_settings(self, broker_id: BrokerId) -> Mapping[str, str]:
        """Return the settings of a broker on top of the settings of all brokers."""
        own = self.configs.get(ConfigResource(ResourceType.BROKER, str(broker_id)), _NO_SETTINGS)
        return {**self.configs.get(EVERY_BROKER, _NO_SETTINGS), **own}


_NO_SETTINGS: Mapping[str, str] = {}
