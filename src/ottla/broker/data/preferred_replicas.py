"""Sends consumers to the nearest replica (KIP-392).

With `replica.selector.class` set to Kafka's RackAwareReplicaSelector, a consumer that sends its
rack is directed to an in-sync replica of that rack with the wanted offset, the most advanced one
first. The leader itself is used if it is in that rack, or if no other replica is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.metadata.image import ClusterImage
from ottla.model.identifiers import BrokerId, LeaderEpoch
from ottla.replication.partition import Fetched, Partition
from ottla.wire.messages.fetch import FetchPartition

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True)
class PreferredReplicas:
    """Looks for a nearer replica on the leader's side."""

    image: Callable[[], ClusterImage]
    is_rack_aware: bool

    def find(self, partition: Partition, rack: str, wanted: FetchPartition) -> Fetched | None:
        """Return the response that redirects a consumer; None if it should read here."""
        in_sync = partition.in_sync
        if not self.is_rack_aware or in_sync is None or partition.is_alone:
            return None
        partition.check_leader(LeaderEpoch(wanted.current_leader_epoch))
        brokers = self.image().brokers
        near = {
            one
            for one in in_sync.isr
            if one in brokers and brokers[one].is_active and brokers[one].rack == rack
        }
        if in_sync.leader in near:
            return None
        ends = [
            (follower.end_offset, -broker_id)
            for broker_id, follower in in_sync.followers.items()
            if broker_id in near and follower.end_offset >= wanted.fetch_offset
        ]
        if not ends:
            return None
        log = partition.log
        return Fetched(
            log.read(log.end_offset, log.end_offset, 0),
            partition.high_watermark,
            partition.last_stable_offset,
            log.log_start_offset,
            partition.traffic,
            preferred_replica=BrokerId(-max(ends)[1]),
        )
