"""The requests of brokers to the controller's broker, in a cluster with ZooKeeper."""

from collections.abc import Callable

from ottla.broker.controller.cluster_membership import Cluster
from ottla.broker.handlers import (
    allocate_producer_ids,
    alter_partition,
    assign_replicas_to_dirs,
    broker_heartbeat,
    envelope,
    fetch_snapshot,
)
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.routes import Route, Routes
from ottla.wire.api_key import ApiKey


def routes_for_brokers(
    store: MetadataStore, cluster: Cluster, inter_broker_listener: str, here: Callable[[], Routes]
) -> dict[int, Route]:
    """Create the handlers; `here` is the table for requests inside envelopes."""
    isr = alter_partition.AlterPartitionHandler(store)
    producer_ids = allocate_producer_ids.AllocateProducerIdsHandler(store)
    heartbeat = broker_heartbeat.BrokerHeartbeatHandler(store, cluster.controlled_shutdown)
    lost = assign_replicas_to_dirs.AssignReplicasToDirsHandler(store)
    snapshot = fetch_snapshot.FetchSnapshotHandler(cluster.feed, cluster.snapshots)
    wrapped = envelope.EnvelopeHandler(here, cluster.controller.is_here, inter_broker_listener)
    return {
        ApiKey.ALTER_PARTITION: Route(alter_partition.VERSIONS, isr.handle, _never),
        ApiKey.ALLOCATE_PRODUCER_IDS: Route(
            allocate_producer_ids.VERSIONS, producer_ids.handle, _never
        ),
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: Route(
            assign_replicas_to_dirs.VERSIONS, lost.handle, _never
        ),
        ApiKey.BROKER_HEARTBEAT: Route(broker_heartbeat.VERSIONS, heartbeat.handle, _never),
        ApiKey.FETCH_SNAPSHOT: Route(fetch_snapshot.VERSIONS, snapshot.handle, _never),
        ApiKey.ENVELOPE: Route(envelope.VERSIONS, wrapped.handle, _never),
    }


def _never() -> bool:
    """Not advertised to clients."""
    return False
