"""The composition root: settings and an environment in, a running broker out."""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Lock
from typing import Final, Self

from ottla.broker.active_controller import ActiveController
from ottla.broker.background import Background
from ottla.broker.cluster_view import ClusterView
from ottla.broker.dispatch import Dispatch
from ottla.broker.endpoints import Endpoints
from ottla.broker.flushing import Flushing
from ottla.broker.group_coordinator import GroupCoordinator
from ottla.broker.group_log import GroupLog
from ottla.broker.handlers import api_versions
from ottla.broker.image_follower import ImageFollower
from ottla.broker.limits import ConnectionLimits
from ottla.broker.live_config import LiveConfig
from ottla.broker.log_cleaner import CleanerSettings, LogCleaner
from ottla.broker.metadata_store.embedded import EmbeddedMetadataStore
from ottla.broker.offsets_topic import OffsetsTopic
from ottla.broker.operations import Operations
from ottla.broker.outgoing import ColdReads
from ottla.broker.partition_folders import PartitionFolders
from ottla.broker.partitions import Partitions
from ottla.broker.progress import Bells
from ottla.broker.replica_moves import ReplicaMoves
from ottla.broker.replication import Replication, ReplicationSources
from ottla.broker.routes import Route
from ottla.broker.server import Server
from ottla.broker.services import Services
from ottla.broker.topic_creation import TopicCreation
from ottla.broker.wiring.cluster import cluster_routes
from ottla.broker.wiring.configs import config_routes
from ottla.broker.wiring.controller import controller_routes
from ottla.broker.wiring.data import data_routes
from ottla.broker.wiring.groups import group_routes
from ottla.broker.wiring.replicas import replica_routes
from ottla.broker.wiring.topics import topic_routes
from ottla.environment.clock import Clock
from ottla.environment.disk import Disk
from ottla.environment.network import Network
from ottla.environment.randomness import Randomness
from ottla.machines.controller.brokers import EPOCH_TO_BE_GIVEN
from ottla.machines.controller.features import SUPPORTED_LEVELS
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.groups.settings import GroupSettings
from ottla.metadata.image import BrokerImage, Endpoint
from ottla.model.broker_config import BrokerConfig
from ottla.model.listeners import Listener
from ottla.storage.folder_lock import lock_folders
from ottla.storage.log_dirs import LogDirs
from ottla.wire.api_key import ApiKey
from ottla.wire.records.compression import Compression

THREADS: Final = 4
"""They only wait for the disk: flushes, cold reads, the metadata log."""
REFUSED_RETRY_MS: Final = 10_000
"""When a partition is tried again that a full disk refused to make or to open."""
PLAINTEXT_NUMBER: Final = 0


@dataclass(frozen=True, slots=True)
class Environment:
    """The outside world."""

    disk: Disk
    clock: Clock
    randomness: Randomness
    cold_reads: ColdReads
    host_name: str
    network: Network


class Broker:
    """A running broker. `start` it where the event loop runs, and `stop` it there."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        threads: ThreadPoolExecutor,
        store: EmbeddedMetadataStore,
        log_dirs: LogDirs,
        operations: Operations,
    ) -> None:
        self.config = config
        self.operations = operations
        self.endpoints = Endpoints()
        self.partitions = Partitions()
        self._environment = environment
        self._threads = threads
        self._store = store
        self._live_config = LiveConfig(config)
        self._log_dirs = log_dirs
        self._bells = Bells(environment.clock)
        self._flushing = Flushing(threads, environment.clock)
        self._controller = ActiveController(
            config.node_id, lambda: self._broker_epoch, store, environment.clock
        )
        self._replication = self._make_replication()
        self._routes: dict[int, Route] = {}
        self._server = Server(
            Dispatch(self._routes, environment.clock, operations.meters),
            _limits(config),
            environment.clock,
            operations.cold_reads,
            threads,
            environment.network,
        )
        self._broker_epoch = -1
        self._coordinator: GroupCoordinator | None = None
        self._cleaner = LogCleaner(
            self.partitions, log_dirs, environment.clock, _cleaner_settings(config)
        )
        self._background: Background | None = None
        self._moves: ReplicaMoves | None = None
        self._folders = PartitionFolders(
            log_dirs, threads, environment.clock, environment.randomness
        )
        self.folder_locks = ExitStack()
        """What has to be given back when everything is closed."""

    @classmethod
    async def start(cls, config: BrokerConfig, environment: Environment) -> Self:
        """Open everything that is on the disks, and let clients in."""
        operations = await Operations.open(config, environment.clock, environment.cold_reads)
        try:
            with lock_folders(environment.disk, config.log_dirs) as locks:
                broker = await cls._start(config, environment, operations)
                broker.folder_locks.enter_context(locks.pop_all())
                return broker
        except BaseException:
            await operations.close()
            raise

    @classmethod
    async def _start(
        cls, config: BrokerConfig, environment: Environment, operations: Operations
    ) -> Self:
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
        log_dirs = LogDirs(environment.disk, config.log_dirs, guard=Lock())
        broker = cls(config, environment, threads, store, log_dirs, operations)
        await broker._open()
        return broker

    def _make_replication(self) -> Replication:
        return Replication(
            ReplicationSources(
                config=self.config,
                clock=self._environment.clock,
                network=self._environment.network,
                threads=self._threads,
                bells=self._bells,
                flushing=self._flushing,
                partitions=self.partitions,
                log_dirs=self._log_dirs,
                image=lambda: self._store.image,
                broker_epoch=lambda: self._broker_epoch,
                channel=self._controller,
            )
        )

    def _open_partitions(self) -> ImageFollower:
        """Open what is on the disks, and let it follow the metadata from now on."""
        self._live_config.subscribe(lambda config: self._server.change_limits(_limits(config)))
        self._live_config.subscribe(lambda config: self._cleaner.apply(_cleaner_settings(config)))
        self._live_config.take(self._store.image)
        self._store.subscribe(self._live_config.on_change)
        follower = ImageFollower(
            self._replication.roles, self._folders, self.partitions, self._live_config
        )
        follower.open_all(self._store.image)
        self._store.prepare_by(follower.prepare)
        self._store.subscribe(follower.on_change)
        return follower

    def _resume_moves(self) -> ReplicaMoves:
        """Go on with what was on its way to another folder."""
        moves = ReplicaMoves(
            self.partitions,
            self._folders,
            self._flushing,
            self._threads,
            self._environment.clock,
            self._environment.randomness,
            lambda partition: partition.name in self._cleaner.in_progress,
        )
        moves.resume()
        return moves

    async def _open(self) -> None:
        follower = self._open_partitions()
        self._broker_epoch = await self._register(await self._bind())
        follower.registered()
        creation = self._make_creation()
        self._coordinator = self._open_groups(creation)
        self._background = Background(
            self.partitions,
            self._log_dirs,
            self._flushing,
            self._environment.clock,
            self._threads,
            self._cleaner.is_replacing,
            lambda: self._live_config.current.producer_id_expiration_ms,
        )
        self._background.start(
            retention_ms=self.config.log_retention_check_interval_ms,
            checkpoint_ms=self.config.log_flush_offset_checkpoint_interval_ms,
        )
        self._background.every("refused partitions", REFUSED_RETRY_MS, follower.retry)
        self._replication.start(self._background)
        if self.config.log_cleaner_enable:
            self._cleaner.start()
        self._moves = self._resume_moves()
        services = Services(
            config=self.config,
            live_config=self._live_config,
            clock=self._environment.clock,
            randomness=self._environment.randomness,
            store=self._store,
            log_dirs=self._log_dirs,
            partitions=self.partitions,
            endpoints=self.endpoints,
            bells=self._bells,
            threads=self._threads,
            flushing=self._flushing,
            creation=creation,
            view=ClusterView(self.config.node_id, lambda: self._store.image, self.partitions),
            folders=self._folders,
            moves=self._moves,
            coordinator=self._coordinator,
            meters=self.operations.meters,
            controller=self._controller,
        )
        self._routes.update(self._make_routes(services))
        self._server.start()
        self.operations.is_ready(
            self._store, self.partitions, self._log_dirs, self._coordinator, self._server
        )

    def _make_creation(self) -> TopicCreation:
        return TopicCreation(
            self._store,
            self._environment.randomness,
            self.config.auto_create_topics_enable,
            self._controller,
        )

    def _open_groups(self, creation: TopicCreation) -> GroupCoordinator:
        """Begin to load the groups, and let them know of topics that go."""
        config = self.config
        clock = self._environment.clock
        compression = Compression(config.offsets_topic_compression_codec)
        is_alone = isinstance(self._store, EmbeddedMetadataStore)
        coordinator = GroupCoordinator(
            self.partitions,
            creation,
            self._bells,
            clock,
            _group_settings(config),
            OffsetsTopic(
                config.offsets_topic_num_partitions,
                config.offsets_topic_segment_bytes,
                1 if is_alone else config.offsets_topic_replication_factor,
            ),
            GroupLog(clock, self._threads, compression),
            self._flushing,
        )
        self._store.subscribe(coordinator.on_change)
        coordinator.open_if_there()
        return coordinator

    async def _bind(self) -> tuple[Listener, ...]:
        """Take the ports of all listeners; return where clients are told to come."""
        ports = {
            listener.name: await self._server.bind(listener)
            for listener in self.config.broker_listeners
        }
        advertised = self.config.to_advertise(ports, self._environment.host_name)
        for listener in advertised:
            self.endpoints.advertise(listener.name, listener.host, listener.port)
        return advertised

    async def _register(self, advertised: tuple[Listener, ...]) -> int:
        endpoints = tuple(
            Endpoint(listener.name, listener.host, listener.port, PLAINTEXT_NUMBER)
            for listener in advertised
        )
        incarnation_id = self._environment.randomness.uuid()
        broker = BrokerImage(
            self.config.node_id,
            EPOCH_TO_BE_GIVEN,
            incarnation_id,
            endpoints,
            rack=self.config.broker_rack,
            log_dirs=self._store.identity.directory_ids,
            levels_by_feature=SUPPORTED_LEVELS,
        )
        return await self._store.execute(lambda controller: controller.register_broker(broker))

    def _make_routes(self, services: Services) -> dict[int, Route]:
        """Return the whole table, which ApiVersions tells clients of."""
        versions = api_versions.ApiVersionsHandler(lambda: self._routes, lambda: self._store.image)
        return {
            ApiKey.API_VERSIONS: Route(api_versions.VERSIONS, versions.handle),
            **data_routes(services),
            **topic_routes(services),
            **cluster_routes(services),
            **replica_routes(services),
            **config_routes(services),
            **group_routes(services),
            **controller_routes(services, lambda: self._routes),
        }

    async def stop(self) -> None:
        """Answer what is in flight, close every log, and leave the marks of a clean stop."""
        self.operations.is_stopping()
        self._bells.close()
        await self._server.stop()
        if self._coordinator is not None:
            self._coordinator.stop()
        await self._replication.stop()
        await self._cleaner.stop()
        if self._moves is not None:
            await self._moves.stop()
        if self._background is not None:
            await self._background.stop()
        await self._store.close()
        await self._folders.stop()
        self._replication.close()
        self._log_dirs.close(self._environment.clock.now_ms(), self._broker_epoch)
        self._threads.shutdown()
        self.folder_locks.close()
        await self.operations.close()


def _limits(config: BrokerConfig) -> ConnectionLimits:
    return ConnectionLimits(
        frame_bytes_max=config.socket_request_max_bytes,
        connections_max=config.max_connections,
        connections_per_address_max=config.max_connections_per_ip,
        idle_ms_max=_or_no_limit(config.connections_max_idle_ms),
        request_bytes_max=_or_no_limit(config.queued_max_request_bytes),
        send_buffer_bytes=config.socket_send_buffer_bytes,
    )


def _or_no_limit(limit: int) -> int:
    return sys.maxsize if limit < 0 else limit


def _cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    return CleanerSettings(
        threads=config.log_cleaner_threads,
        backoff_ms=config.log_cleaner_backoff_ms,
        dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
        bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
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
