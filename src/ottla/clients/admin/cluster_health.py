"""The health of a cluster: leaders, lagging replicas and offline partitions."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ottla.clients.admin.admin_cluster import ClusterAdmin, ClusterDescription
from ottla.clients.admin.admin_topics import TopicAdmin, TopicDescription
from ottla.clients.cluster.cluster_client import ClusterView


class Health(StrEnum):
    """The worst condition of a cluster."""

    OK = "ok"
    UNDER_REPLICATED = "under-replicated"
    """Some partition has fewer in-sync replicas than replicas."""
    OFFLINE = "offline"
    """Some partition has no leader: it can be neither written nor read."""


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """Counts of the partitions of all topics."""

    partitions: int
    under_replicated: int
    offline: int
    leaders_by_broker: Mapping[int, int]
    replicas_by_broker: Mapping[int, int]
    behind_by_broker: Mapping[int, int]
    """The number of out-of-sync replicas by broker."""

    @property
    def verdict(self) -> Health:
        """The worst condition."""
        if self.offline:
            return Health.OFFLINE
        return Health.UNDER_REPLICATED if self.under_replicated else Health.OK


async def look_at(view: ClusterView) -> tuple[ClusterDescription, ClusterHealth]:
    """Request the brokers and the state of all partitions."""
    described = await ClusterAdmin(view).describe()
    return described, health_of(await TopicAdmin(view).list())


def health_of(topics: Iterable[TopicDescription]) -> ClusterHealth:
    """Count the partitions."""
    partitions = [partition for topic in topics for partition in topic.partitions]
    behind = [set(row.replicas) - set(row.in_sync_replicas) for row in partitions]
    return ClusterHealth(
        partitions=len(partitions),
        under_replicated=sum(map(bool, behind)),
        offline=sum(row.leader < 0 for row in partitions),
        leaders_by_broker=Counter(row.leader for row in partitions if row.leader >= 0),
        replicas_by_broker=Counter(replica for row in partitions for replica in row.replicas),
        behind_by_broker=Counter(replica for replicas in behind for replica in replicas),
    )
