"""The composition root: settings and an environment in, a running broker out."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Self

from ottla.broker.background import Background
from ottla.broker.dispatch import Dispatch
from ottla.broker.endpoints import Endpoints
from ottla.broker.flushing import Flushing
from ottla.broker.group_coordinator import GroupCoordinator
from ottla.broker.handlers import (
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_topics,
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
)
from ottla.broker.image_follower import ImageFollower
from ottla.broker.limits import ConnectionLimits
from ottla.broker.metadata_store.embedded import EmbeddedMetadataStore
from ottla.broker.outgoing import ColdReads
from ottla.broker.partitions import Partitions
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.progress import Bells
from ottla.broker.routes import Route
from ottla.broker.server import Server
from ottla.broker.topic_creation import TopicCreation
from ottla.environment.clock import Clock
from ottla.environment.disk import Disk
from ottla.environment.randomness import Randomness
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.groups.settings import GroupSettings
from ottla.metadata.image import Endpoint
from ottla.model.broker_config import BrokerConfig
from ottla.model.listeners import Listener
from ottla.storage.log_dirs import LogDirs
from ottla.wire.api_key import ApiKey

THREADS: Final = 4
"""They only wait for the disk: flushes, cold reads, the metadata log."""
PLAINTEXT_NUMBER: Final = 0


@dataclass(frozen=True, slots=True)
class Environment:
    """The outside world."""

    disk: Disk
    clock: Clock
    randomness: Randomness
    cold_reads: ColdReads
    host_name: str


class Broker:
    """A running broker. `start` it where the event loop runs, and `stop` it there."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        threads: ThreadPoolExecutor,
        store: EmbeddedMetadataStore,
        log_dirs: LogDirs,
    ) -> None:
        self.config = config
        self.endpoints = Endpoints()
        self.partitions = Partitions()
        self._environment = environment
        self._threads = threads
        self._store = store
        self._log_dirs = log_dirs
        self._bells = Bells(environment.clock)
        self._routes: dict[int, Route] = {}
        self._server = Server(
            Dispatch(self._routes, environment.clock),
            _limits(config),
            environment.clock,
            environment.cold_reads,
            threads,
        )
        self._broker_epoch = -1
        self._coordinator: GroupCoordinator | None = None
        self._background: Background | None = None

    @classmethod
    async def start(cls, config: BrokerConfig, environment: Environment) -> Self:
        """Open everything that is on the disks, and let clients in."""
        threads = ThreadPoolExecutor(THREADS, thread_name_prefix="ottla")
        settings = ControllerSettings(
            broker_id=config.node_id,
            num_partitions=config.num_partitions,
            default_replication_factor=config.default_replication_factor,
            topic_defaults=config.topic_defaults(),
        )
        store = EmbeddedMetadataStore.open(
            environment.disk,
            config.log_dirs,
            settings,
            clock=environment.clock,
            randomness=environment.randomness,
            threads=threads,
        )
        log_dirs = LogDirs(environment.disk, config.log_dirs)
        broker = cls(config, environment, threads, store, log_dirs)
        await broker._open()
        return broker

    async def _open(self) -> None:
        follower = ImageFollower(
            self.config.node_id,
            self._log_dirs,
            self.partitions,
            self._environment.clock,
            self.config.topic_defaults(),
            self._bells.ring,
        )
        follower.open_all(self._store.image)
        self._store.subscribe(follower.on_change)
        ports = {
            listener.name: await self._server.bind(listener)
            for listener in self.config.broker_listeners
        }
        advertised = self.config.to_advertise(ports, self._environment.host_name)
        for listener in advertised:
            self.endpoints.advertise(listener.name, listener.host, listener.port)
        self._broker_epoch = await self._register(advertised)
        creation = TopicCreation(
            self._store, self._environment.randomness, self.config.auto_create_topics_enable
        )
        self._coordinator = GroupCoordinator(
            self.partitions,
            creation,
            self._bells,
            self._environment.clock,
            _group_settings(self.config),
            self.config.offsets_topic_num_partitions,
        )
        self._coordinator.open_if_there()
        flushing = Flushing(self._threads, self._environment.clock)
        self._background = Background(
            self.partitions, self._log_dirs, flushing, self._environment.clock
        )
        self._background.start(
            retention_ms=self.config.log_retention_check_interval_ms,
            checkpoint_ms=self.config.log_flush_offset_checkpoint_interval_ms,
        )
        self._routes.update(self._make_routes(creation, flushing))
        self._routes.update(self._make_group_routes(self._coordinator))
        self._server.start()

    async def _register(self, advertised: tuple[Listener, ...]) -> int:
        incarnation_id = self._environment.randomness.uuid()
        ends = [
            Endpoint(listener.name, listener.host, listener.port, PLAINTEXT_NUMBER)
            for listener in advertised
        ]
        return await self._store.execute(
            lambda controller: controller.register_broker(self.config.node_id, incarnation_id, ends)
        )

    def _make_routes(self, creation: TopicCreation, flushing: Flushing) -> dict[int, Route]:
        """Wire the handlers of data and topics: one row per API."""
        clock, randomness = self._environment.clock, self._environment.randomness
        node_id, store = self.config.node_id, self._store
        producer_ids = ProducerIds(store, node_id, self._broker_epoch)
        produce_ = produce.ProduceHandler(self.partitions, flushing, clock)
        fetch_ = fetch.FetchHandler(self.partitions, self._bells)
        list_offsets_ = list_offsets.ListOffsetsHandler(self.partitions)
        metadata_ = metadata.MetadataHandler(node_id, creation, self.endpoints)
        versions = api_versions.ApiVersionsHandler(lambda: self._routes)
        create = create_topics.CreateTopicsHandler(creation)
        delete = delete_topics.DeleteTopicsHandler(store)
        init = init_producer_id.InitProducerIdHandler(producer_ids)
        partitions = create_partitions.CreatePartitionsHandler(store, randomness)
        return {
            ApiKey.PRODUCE: Route(produce.VERSIONS, produce_.handle),
            ApiKey.FETCH: Route(fetch.VERSIONS, fetch_.handle),
            ApiKey.LIST_OFFSETS: Route(list_offsets.VERSIONS, list_offsets_.handle),
            ApiKey.METADATA: Route(metadata.VERSIONS, metadata_.handle),
            ApiKey.API_VERSIONS: Route(api_versions.VERSIONS, versions.handle),
            ApiKey.CREATE_TOPICS: Route(create_topics.VERSIONS, create.handle),
            ApiKey.DELETE_TOPICS: Route(delete_topics.VERSIONS, delete.handle),
            ApiKey.INIT_PRODUCER_ID: Route(init_producer_id.VERSIONS, init.handle),
            ApiKey.CREATE_PARTITIONS: Route(create_partitions.VERSIONS, partitions.handle),
        }

    def _make_group_routes(self, coordinator: GroupCoordinator) -> dict[int, Route]:
        """Wire the handlers of groups: one row per API."""
        find = find_coordinator.FindCoordinatorHandler(
            self.config.node_id, self.endpoints, coordinator
        )
        join = join_group.JoinGroupHandler(coordinator, self._environment.randomness)
        sync = sync_group.SyncGroupHandler(coordinator)
        beat = heartbeat.HeartbeatHandler(coordinator)
        leave = leave_group.LeaveGroupHandler(coordinator)
        commit = offset_commit.OffsetCommitHandler(coordinator, self.partitions)
        offsets = offset_fetch.OffsetFetchHandler(coordinator)
        list_ = list_groups.ListGroupsHandler(coordinator)
        describe = describe_groups.DescribeGroupsHandler(coordinator)
        delete = delete_groups.DeleteGroupsHandler(coordinator)
        return {
            ApiKey.OFFSET_COMMIT: Route(offset_commit.VERSIONS, commit.handle),
            ApiKey.OFFSET_FETCH: Route(offset_fetch.VERSIONS, offsets.handle),
            ApiKey.FIND_COORDINATOR: Route(find_coordinator.VERSIONS, find.handle),
            ApiKey.JOIN_GROUP: Route(join_group.VERSIONS, join.handle),
            ApiKey.HEARTBEAT: Route(heartbeat.VERSIONS, beat.handle),
            ApiKey.LEAVE_GROUP: Route(leave_group.VERSIONS, leave.handle),
            ApiKey.SYNC_GROUP: Route(sync_group.VERSIONS, sync.handle),
            ApiKey.DESCRIBE_GROUPS: Route(describe_groups.VERSIONS, describe.handle),
            ApiKey.LIST_GROUPS: Route(list_groups.VERSIONS, list_.handle),
            ApiKey.DELETE_GROUPS: Route(delete_groups.VERSIONS, delete.handle),
        }

    async def stop(self) -> None:
        """Answer what is in flight, close every log, and leave the marks of a clean stop."""
        self._bells.close()
        await self._server.stop()
        if self._coordinator is not None:
            self._coordinator.stop()
        if self._background is not None:
            await self._background.stop()
        await self._store.close()
        self._log_dirs.close(self._environment.clock.now_ms(), self._broker_epoch)
        self._threads.shutdown()


def _limits(config: BrokerConfig) -> ConnectionLimits:
    return ConnectionLimits(
        frame_bytes_max=config.socket_request_max_bytes,
        connections_max=config.max_connections,
        connections_per_address_max=config.max_connections_per_ip,
        idle_ms_max=config.connections_max_idle_ms,
    )


def _group_settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
    )
