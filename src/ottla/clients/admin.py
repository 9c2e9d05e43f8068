"""What can be asked of a cluster besides records, by noun: `admin.topics.create(…)`."""

from dataclasses import dataclass

from ottla.clients.admin_cluster import ClusterAdmin
from ottla.clients.admin_configs import ConfigAdmin
from ottla.clients.admin_groups import GroupAdmin
from ottla.clients.admin_offsets import OffsetAdmin
from ottla.clients.admin_partitions import PartitionAdmin
from ottla.clients.admin_producers import ProducerAdmin
from ottla.clients.admin_topics import TopicAdmin
from ottla.clients.admin_transactions import TransactionAdmin
from ottla.clients.cluster_view import ClusterView


@dataclass(frozen=True, slots=True)
class Admin:
    """Every administrative call. What a broker refuses is raised as ApiError, naming the item."""

    topics: TopicAdmin
    configs: ConfigAdmin
    groups: GroupAdmin
    offsets: OffsetAdmin
    partitions: PartitionAdmin
    cluster: ClusterAdmin
    transactions: TransactionAdmin
    producers: ProducerAdmin

    @classmethod
    def over(cls, view: ClusterView) -> "Admin":
        """Make one that asks through this view, which stays the caller's to close."""
        return cls(
            TopicAdmin(view),
            ConfigAdmin(view),
            GroupAdmin(view),
            OffsetAdmin(view),
            PartitionAdmin(view),
            ClusterAdmin(view),
            TransactionAdmin(view),
            ProducerAdmin(view),
        )
