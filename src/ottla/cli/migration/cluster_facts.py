"""The facts about a Kafka cluster that decide whether Ottla's brokers can replace its brokers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.model.identifiers import BrokerId, TopicPartition


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A broker or controller: its settings, and the releases of Kafka that it can be."""

    node_id: BrokerId
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings that are not defaults; the value of a secret is empty."""
    metadata_version_max: int | None = None
    """The highest metadata.version that the node supports; None if it names none."""

    @property
    def roles(self) -> frozenset[str]:
        """The words of process.roles."""
        words = self.settings.get("process.roles", "").split(",")
        return frozenset(word.strip() for word in words if word.strip())


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The answers of a cluster's public APIs."""

    nodes: tuple[NodeFacts, ...]
    unread_nodes: tuple[BrokerId, ...] = ()
    """The brokers and controllers that could not be asked for their settings."""
    has_quorum: bool = True
    """False if the cluster keeps its metadata in ZooKeeper."""
    level_by_feature: Mapping[str, int] = field(default_factory=dict)
    tiered_topics: tuple[str, ...] = ()
    offline_partitions: tuple[TopicPartition, ...] = ()
    old_format_partitions: tuple[TopicPartition, ...] = ()
    """The partitions that begin with messages of a format before Kafka 0.11."""
    groups_by_type: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    acl_count: int = 0
    quota_count: int = 0
    scram_users: tuple[str, ...] = ()
