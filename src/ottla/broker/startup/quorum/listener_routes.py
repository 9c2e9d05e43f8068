"""The table of routes of a listener for controllers: the same APIs as in Kafka."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.broker.controller.brokers_in_zookeeper import BrokersInZooKeeper
from ottla.broker.controller.controller_client import ActiveController
from ottla.broker.controller.metadata_propagation import Spread
from ottla.broker.controller.topic_creation import TopicCreation
from ottla.broker.handlers import (
    allocate_producer_ids,
    alter_partition,
    api_versions,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    envelope,
    fetch_snapshot,
    update_features,
)
from ottla.broker.hosting.live_config import LiveConfig
from ottla.broker.metadata_store.quorum.store import QuorumMetadataStore
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.quorum.metadata_replica import MetadataReplica
from ottla.broker.quorum.replica_requests import ReplicaRequestHandler
from ottla.broker.requests.request_context import RequestContext
from ottla.broker.requests.routes import Handle, Route, Routes
from ottla.broker.startup.route_table import (
    config_routes,
    controller_routes,
    replica_routes,
    security_routes,
    unsupported_routes,
)
from ottla.concurrency.yield_budget import TimeSlices
from ottla.environment.clock import Clock
from ottla.environment.randomness import Randomness
from ottla.machines.controller.machine import Controller
from ottla.model.settings.broker_config import BrokerConfig
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.fetch_snapshot import FetchSnapshotRequest
from ottla.wire.schema import Message

OFFERED: Final = frozenset(
    {1, *range(17, 21), *range(29, 34), *range(36, 42), *range(43, 47), *range(49, 61)}
    | {62, 63, 64, 67, 70, 73, 80, 81, 82}
)
"""The APIs of a listener for controllers in Kafka 4.3."""
_OF_REPLICAS: Final = {
    ApiKey.FETCH: range(4, 19),
    ApiKey.VOTE: range(3),
    ApiKey.BEGIN_QUORUM_EPOCH: range(2),
    ApiKey.END_QUORUM_EPOCH: range(2),
    ApiKey.FETCH_SNAPSHOT: range(2),
    ApiKey.UPDATE_RAFT_VOTER: range(1),
}
_FOR_ADMINS: Final = {
    ApiKey.DESCRIBE_QUORUM: range(3),
    ApiKey.ADD_RAFT_VOTER: range(2),
    ApiKey.REMOVE_RAFT_VOTER: range(1),
}


@dataclass(frozen=True, slots=True)
class ListenerWorld:
    """The parts of a node that the handlers work with."""

    config: BrokerConfig
    replica: MetadataReplica
    store: QuorumMetadataStore
    clock: Clock
    randomness: Randomness
    slices: TimeSlices
    spread: Spread
    brokers_in_zookeeper: BrokersInZooKeeper | None = None


def quorum_routes(replica: MetadataReplica, store: MetadataStore) -> dict[int, Route]:
    """Create the handlers of requests about the quorum that any node passes to its leader."""
    handle = ReplicaRequestHandler(replica).handle
    features = update_features.UpdateFeaturesHandler(store, replica)
    return {
        **{key: Route(rows, handle, is_for_controller=True) for key, rows in _FOR_ADMINS.items()},
        ApiKey.UPDATE_FEATURES: Route(
            update_features.VERSIONS, features.handle, is_for_controller=True
        ),
    }


def listener_routes(world: ListenerWorld) -> dict[int, Route]:
    """Return the whole table of a listener for controllers."""
    store, slices = world.store, world.slices
    replicated = ReplicaRequestHandler(world.replica).handle
    old_brokers = world.brokers_in_zookeeper
    live_config = LiveConfig(world.config)
    live_config.take(store.image)
    store.subscribe(live_config.on_change)
    table: dict[int, Route] = {}
    replica = world.replica
    versions = api_versions.ApiVersionsHandler(
        lambda: table, lambda: store.image, lambda: replica.kraft_version
    )
    describe = describe_cluster.DescribeControllersHandler(store, world.replica)
    every: dict[int, Route] = {
        **replica_routes(store),
        **config_routes(store, live_config, world.clock, world.randomness, slices),
        **controller_routes(store),
        **security_routes(),
        **unsupported_routes(),
        **quorum_routes(world.replica, store),
        **{key: Route(rows, replicated) for key, rows in _OF_REPLICAS.items()},
        **_topic_routes(world),
        **_broker_routes(world, lambda: table),
        **({} if old_brokers is None else _fetch_routes(old_brokers, replicated)),
        ApiKey.API_VERSIONS: Route(api_versions.VERSIONS, versions.handle),
        ApiKey.DESCRIBE_CLUSTER: Route(describe_cluster.VERSIONS, describe.handle),
    }
    table.update({key: route for key, route in every.items() if key in OFFERED})
    return table


def _fetch_routes(old_brokers: BrokersInZooKeeper, replicated: Handle) -> dict[int, Route]:
    """Create the handlers of fetches that may come from brokers with metadata in ZooKeeper."""
    pieces = fetch_snapshot.FetchSnapshotHandler(old_brokers.feed, old_brokers.snapshots)

    async def fetch(context: RequestContext, request: FetchRequest) -> Message:
        if old_brokers.is_meant(request):
            return await old_brokers.fetch.handle(request, context.received_ms)
        answer: Message = await replicated(context, request)
        return answer

    async def fetch_piece(context: RequestContext, request: FetchSnapshotRequest) -> Message:
        if old_brokers.is_meant(request):
            return await pieces.handle(context, request)
        answer: Message = await replicated(context, request)
        return answer

    return {
        ApiKey.FETCH: Route(_OF_REPLICAS[ApiKey.FETCH], fetch),
        ApiKey.FETCH_SNAPSHOT: Route(_OF_REPLICAS[ApiKey.FETCH_SNAPSHOT], fetch_piece),
    }


def _nothing(_controller: Controller) -> None:
    """Do nothing: every broker sends heartbeats."""


def _topic_routes(world: ListenerWorld) -> dict[int, Route]:
    store, randomness, spread = world.store, world.randomness, world.spread
    # Without a channel to another node: a controller that is not active says so.
    alone = ActiveController(world.config.node_id, lambda: -1, store, world.clock)
    creation = TopicCreation(store, randomness, False, alone, spread)
    create = create_topics.CreateTopicsHandler(creation, spread)
    delete = delete_topics.DeleteTopicsHandler(store, world.config.delete_topic_enable, spread)
    partitions = create_partitions.CreatePartitionsHandler(store, randomness, spread)
    return {
        ApiKey.CREATE_TOPICS: Route(create_topics.VERSIONS, create.handle, is_for_controller=True),
        ApiKey.DELETE_TOPICS: Route(delete_topics.VERSIONS, delete.handle, is_for_controller=True),
        ApiKey.CREATE_PARTITIONS: Route(
            create_partitions.VERSIONS, partitions.handle, is_for_controller=True
        ),
    }


def _broker_routes(world: ListenerWorld, here: Callable[[], Routes]) -> dict[int, Route]:
    """Create the handlers of requests of brokers, and of controllers that register."""
    store, clock = world.store, world.clock
    isr = alter_partition.AlterPartitionHandler(store)
    producer_ids = allocate_producer_ids.AllocateProducerIdsHandler(store)
    lost = assign_replicas_to_dirs.AssignReplicasToDirsHandler(store)
    registration = broker_registration.BrokerRegistrationHandler(
        store, clock, lambda: world.replica.kraft_version
    )
    old_brokers = world.brokers_in_zookeeper
    note_offsets = _nothing if old_brokers is None else old_brokers.note_offsets
    heartbeat = broker_heartbeat.QuorumHeartbeatHandler(store, clock, note_offsets)
    controllers = controller_registration.ControllerRegistrationHandler(store)
    wrapped = envelope.EnvelopeHandler(
        here, lambda: store.is_active, world.config.controller_listeners[0].name
    )
    return {
        ApiKey.ALTER_PARTITION: Route(alter_partition.VERSIONS, isr.handle),
        ApiKey.ALLOCATE_PRODUCER_IDS: Route(allocate_producer_ids.VERSIONS, producer_ids.handle),
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: Route(assign_replicas_to_dirs.VERSIONS, lost.handle),
        ApiKey.BROKER_REGISTRATION: Route(broker_registration.VERSIONS, registration.handle),
        ApiKey.BROKER_HEARTBEAT: Route(broker_heartbeat.VERSIONS, heartbeat.handle),
        ApiKey.CONTROLLER_REGISTRATION: Route(controller_registration.VERSIONS, controllers.handle),
        ApiKey.ENVELOPE: Route(envelope.VERSIONS, wrapped.handle),
    }
