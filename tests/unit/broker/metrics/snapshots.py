"""Hand-made metric snapshots of a broker."""

from collections import Counter
from collections.abc import Sequence

from ottla.broker.maintenance.log_scrubber import DamageCounts
from ottla.broker.metrics.snapshot import (
    GroupFacts,
    LoopFacts,
    PartitionFacts,
    ReplicationFacts,
    Snapshot,
    TransactionFacts,
)
from ottla.metadata.image import ClusterImage
from ottla.replication.partition import Traffic


def snapshot_of(
    image: ClusterImage,
    partitions: PartitionFacts,
    groups: Sequence[GroupFacts] = (),
    *,
    node_id: int = 0,
    is_controller: bool = False,
) -> Snapshot:
    return Snapshot(
        node_id=node_id,
        start_seconds=0,
        is_controller=is_controller,
        image=image,
        partitions=partitions,
        groups=list(groups),
        transactions=TransactionFacts(Counter(), 0),
        traffic=Traffic(),
        traffic_by_topic={},
        meters={},
        errors={},
        connections_by_listener={},
        accepted_connections=0,
        closed_by_reason={},
        offline_folders=0,
        full_log_dirs=0,
        cold_reads=0,
        cold_bytes=0,
        damage=DamageCounts(),
        replication=ReplicationFacts(
            isr_expands=3, isr_shrinks=4, isr_failures=5, elections=6, unclean_elections=1
        ),
        loop=LoopFacts(0, 0, 1),
    )
