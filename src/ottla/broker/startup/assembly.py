"""The composition root: settings and an environment in, a running broker out."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from threading import Lock
from typing import Final, NamedTuple, Self

from ottla.broker.controller.topic_creation import TopicCreation
from ottla.broker.coordinators.consumer_offsets_topic import ConsumerOffsetsTopic
from ottla.broker.coordinators.coordinator_log import CoordinatorLog
from ottla.broker.coordinators.coordinator_runtime import CoordinatorWorld
from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.coordinators.transaction_services import TransactionServices
from ottla.broker.coordinators.transaction_verification import TransactionVerification
from ottla.broker.data.message_format_conversion import MessageFormatConversion
from ottla.broker.describing.metadata_view import CurrentLeaders, MetadataView
from ottla.broker.dispatch import Dispatch
from ottla.broker.handlers import api_versions
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.hosting.live_config import LiveConfig
from ottla.broker.hosting.log_flusher import LogFlusher
from ottla.broker.hosting.metadata_applier import MetadataApplier
from ottla.broker.hosting.partition_log_dirs import PartitionLogDirs
from ottla.broker.maintenance.log_cleaner import CleanerSettings, LogCleaner
from ottla.broker.maintenance.periodic_tasks import PeriodicTasks
from ottla.broker.peers.broker_clients import PeersWorld
from ottla.broker.replication.log_dir_moves import LogDirMoves
from ottla.broker.replication.replication_quotas import Throttles
from ottla.broker.replication.replication_service import Replication, ReplicationSources
from ottla.broker.requests.routes import Route
from ottla.broker.startup.broker_service import (
    BrokerAccess,
    BrokerService,
    OpenService,
    no_service,
)
from ottla.broker.startup.endpoints import Endpoints
from ottla.broker.startup.environment import Environment
from ottla.broker.startup.metadata_backend import open_metadata
from ottla.broker.startup.metadata_mode import MetadataMode
from ottla.broker.startup.observability import Operations
from ottla.broker.startup.route_table import (
    cluster_routes,
    config_routes,
    controller_routes,
    fetch_routes,
    group_routes,
    log_dir_routes,
    offset_routes,
    produce_routes,
    replica_routes,
    security_routes,
    topic_routes,
    transaction_routes,
    unsupported_routes,
)
from ottla.broker.transport.connection_limits import ConnectionLimits
from ottla.broker.transport.server import Server
from ottla.concurrency.notifier import Notifier
from ottla.concurrency.yield_budget import TimeSlices
from ottla.machines.controller.brokers import EPOCH_TO_BE_GIVEN
from ottla.machines.controller.features import CLAIMED_LEVELS
from ottla.machines.groups.group_memory import GroupMemory
from ottla.machines.groups.settings import GroupSettings
from ottla.metadata.image import BrokerImage, Endpoint
from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.listeners import Listener
from ottla.storage.files.open_files import OPEN_FILES_MAX
from ottla.storage.log_dirs.log_dirs import LogDirs
from ottla.wire.api_key import ApiKey
from ottla.wire.coordinator_records.codec import CONSUMER_OFFSETS, RecordCodec
from ottla.wire.records.compression.codecs import Compression

THREADS: Final = 4
"""They only wait for the disk: flushes, cold reads, the metadata log."""
REFUSED_RETRY_MS: Final = 10_000
"""When a partition is tried again that a full disk refused to make or to open."""
RESERVED_DESCRIPTORS: Final = 128
"""Descriptors for other uses than logs and client connections."""
_DESCRIPTORS_SHARE: Final = 4
"""Where there are few, one in so many is for logs, and as many are reserved."""
_PLAINTEXT_NUMBER: Final = 0
_log = logging.getLogger(__name__)


class Broker:
    """A running broker. `start` it where the event loop runs, and `stop` it there."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        threads: ThreadPoolExecutor,
        metadata: MetadataMode,
        notifier: Notifier,
        operations: Operations,
        log_dirs: LogDirs,
        service: BrokerService,
    ) -> None:
        clock = environment.clock
        self.config = config
        self.operations = operations
        self.endpoints = Endpoints()
        self.partitions = HostedPartitions()
        self.service = service
        self._environment = environment
        self._threads = threads
        self.metadata = metadata
        self._store = metadata.store
        self._live_config = LiveConfig(config)
        self._log_dirs = log_dirs
        self._notifier = notifier
        self._flushing = LogFlusher(threads, clock)
        self._throttles = Throttles(config, clock)
        self._replication = self._make_replication()
        self._routes: dict[int, Route] = {}
        self._slices = TimeSlices(clock)
        self._server = Server(
            Dispatch.of(self._routes, clock, operations.meters, self._slices),
            self._slices,
            _connection_limits(config, environment),
            clock,
            operations.cold_reads,
            threads,
            environment.network,
        )
        self._coordinator: GroupCoordinator | None = None
        self._transactions: TransactionServices | None = None
        self._cleaner = LogCleaner(
            self.partitions, log_dirs, clock, CleanerSettings.from_config(config)
        )
        self._background: PeriodicTasks | None = None
        self._moves: LogDirMoves | None = None
        self._are_logs_open = False
        self._folders = PartitionLogDirs(log_dirs, threads, clock, environment.randomness)
        self.folder_locks = ExitStack()
        """Locks to release when everything is closed."""

    @classmethod
    async def start(
        cls,
        config: BrokerConfig,
        environment: Environment,
        open_service: OpenService = no_service,
    ) -> Self:
        """Open everything that is on the disks, and let clients in."""
        operations = await Operations.open(config, environment.clock, environment.cold_reads)
        async with AsyncExitStack() as opened:
            opened.push_async_callback(operations.close)
            service = await open_service(config, environment.host_name)
            opened.push_async_callback(service.close)
            log_dirs = _make_log_dirs(config, environment)
            with log_dirs.lock() as locks:
                broker = await cls._start(config, environment, operations, log_dirs, service)
                broker.folder_locks = locks.pop_all()
            opened.pop_all()
        return broker

    @classmethod
    async def _start(
        cls,
        config: BrokerConfig,
        environment: Environment,
        operations: Operations,
        log_dirs: LogDirs,
        service: BrokerService,
    ) -> Self:
        threads = ThreadPoolExecutor(THREADS, thread_name_prefix="ottla")
        notifier = Notifier(environment.clock)
        metadata = await open_metadata(config, environment, notifier, threads, log_dirs, operations)
        broker = cls(
            config, environment, threads, metadata, notifier, operations, log_dirs, service
        )
        try:
            await broker._open()
        except (Exception, asyncio.CancelledError):
            await broker._give_up()
            raise
        return broker

    def _make_replication(self) -> Replication:
        return Replication(
            ReplicationSources(
                config=self.config,
                clock=self._environment.clock,
                network=self._environment.network,
                threads=self._threads,
                notifier=self._notifier,
                flushing=self._flushing,
                throttles=self._throttles,
                partitions=self.partitions,
                log_dirs=self._log_dirs,
                image=lambda: self._store.image,
                broker_epoch=lambda: self.metadata.broker_epoch,
                controller=self.metadata.controller,
                page_cache=self._environment.cold_reads,
            )
        )

    async def _open_partitions(self) -> MetadataApplier:
        """Open the logs on the disks, and apply the metadata to them from now on."""
        self._live_config.subscribe(
            lambda config: self._server.change_limits(_connection_limits(config, self._environment))
        )
        self._live_config.subscribe(
            lambda config: self._cleaner.apply(CleanerSettings.from_config(config))
        )
        self._live_config.subscribe(self._throttles.apply)
        self._live_config.subscribe(self._replication.apply)
        self._live_config.take(self._store.image)
        self._store.subscribe(self._live_config.on_change)
        follower = MetadataApplier(
            self._replication.roles, self._folders, self.partitions, self._live_config
        )
        await self.metadata.follow_with(follower)
        return follower

    def _resume_moves(self) -> LogDirMoves:
        """Continue the moves between log dirs."""
        moves = LogDirMoves(
            self.partitions,
            self._folders,
            self._flushing,
            self._threads,
            self._environment.clock,
            self._environment.randomness,
            self._throttles.moves,
            lambda partition: partition.name in self._cleaner.in_progress,
        )
        moves.resume()
        return moves

    async def _open(self) -> None:
        follower = await self._open_partitions()
        self._are_logs_open = True
        await self._register(await self._bind())
        clock, has_valid_lease = self._environment.clock, self.metadata.has_valid_lease
        world = CoordinatorWorld(
            self.partitions,
            self._make_creation(),
            self._notifier,
            clock,
            self._flushing,
            has_valid_lease,
        )
        self._coordinator = self._open_groups(world)
        self._transactions = self._open_transactions(world, self._coordinator)
        self._background = self._start_background(follower)
        self._replication.start(self._background)
        if self.config.log_cleaner_enable:
            self._cleaner.start()
        self._moves = self._resume_moves()
        self._routes.update(
            self._make_routes(world, self._coordinator, self._transactions, self._moves)
        )
        self._server.start()
        self._tell_that_it_is_ready(self._coordinator, self._transactions)
        self.service.begin(self.access())

    def access(self) -> BrokerAccess:
        """Return the parts of this running broker that a service works with."""
        return BrokerAccess(
            asyncio.get_running_loop(),
            self.config,
            self.partitions,
            self._notifier,
            self._flushing,
            self._environment.clock,
            self._threads,
            self._make_creation(),
            self._peers_world(),
            self._store.subscribe,
            self.metadata.has_valid_lease,
        )

    def _tell_that_it_is_ready(
        self, coordinator: GroupCoordinator, transactions: TransactionServices
    ) -> None:
        self.operations.announce_ready(
            self._store,
            self.partitions,
            self._log_dirs,
            coordinator,
            transactions,
            self._server,
            self._replication,
            self.metadata.controller.is_here,
        )

    def _view(self) -> MetadataView:
        return MetadataView(
            self.config.node_id,
            lambda: self._store.image,
            self.partitions,
            self.metadata.has_valid_lease,
        )

    def _start_background(self, follower: MetadataApplier) -> PeriodicTasks:
        background = PeriodicTasks(
            self.partitions,
            self._log_dirs,
            self._flushing,
            self._environment.clock,
            self._threads,
            self._cleaner.is_replacing,
            lambda: self._live_config.current.producer_id_expiration_ms,
        )
        background.start(
            retention_ms=self.config.log_retention_check_interval_ms,
            checkpoint_ms=self.config.log_flush_offset_checkpoint_interval_ms,
        )
        background.every("refused partitions", REFUSED_RETRY_MS, follower.retry)
        return background

    def _make_creation(self) -> TopicCreation:
        return TopicCreation(
            self._store,
            self._environment.randomness,
            self.config.auto_create_topics_enable,
            self.metadata.controller,
            self.metadata.spread,
        )

    def _open_groups(self, world: CoordinatorWorld) -> GroupCoordinator:
        """Begin to load the groups, and let them know of topics that go."""
        config = self.config
        compression = Compression(config.offsets_topic_compression_codec)
        codec = RecordCodec(CONSUMER_OFFSETS)
        coordinator = GroupCoordinator(
            world,
            GroupSettings.from_config(config),
            ConsumerOffsetsTopic(
                config.offsets_topic_num_partitions,
                config.offsets_topic_segment_bytes,
                1 if self.metadata.is_alone else config.offsets_topic_replication_factor,
            ),
            CoordinatorLog(codec, world.clock, self._threads, compression),
            GroupMemory(config.ottla_groups_max_bytes),
        )
        self._store.subscribe(coordinator.on_change)
        coordinator.open_if_there()
        return coordinator

    def _open_transactions(
        self, world: CoordinatorWorld, groups: GroupCoordinator
    ) -> TransactionServices:
        return TransactionServices.open(
            self.config,
            world,
            self._peers_world(),
            self._threads,
            {groups.topic: groups},
            is_alone=self.metadata.is_alone,
        )

    def _peers_world(self) -> PeersWorld:
        return PeersWorld(
            self.config.node_id,
            self.config.inter_broker_listener,
            self._environment.network,
            self._environment.clock,
            lambda: self._store.image,
            lambda: self._routes,
        )

    async def _bind(self) -> tuple[Listener, ...]:
        """Bind the ports of all listeners; return the addresses to register."""
        ports = {
            listener.name: await self._server.bind(listener)
            for listener in self.config.broker_listeners
        }
        advertised = self.config.to_advertise(ports, self._environment.host_name)
        for listener in advertised:
            self.endpoints.advertise(listener.name, listener.host, listener.port)
        service = self.service.advertised
        return advertised if service is None else (*advertised, service)

    async def _register(self, advertised: tuple[Listener, ...]) -> None:
        incarnation_id = self._environment.randomness.uuid()
        directory_ids = self.metadata.directory_ids
        broker = _registration(self.config, advertised, incarnation_id, directory_ids)
        await self.metadata.register(broker)

    def _make_routes(
        self,
        world: CoordinatorWorld,
        groups: GroupCoordinator,
        transactions: TransactionServices,
        moves: LogDirMoves,
    ) -> dict[int, Route]:
        """Return the whole table, which ApiVersions advertises."""
        store, slices = self._store, self._slices
        clock, randomness = self._environment.clock, self._environment.randomness
        view = self._view()
        verification = self._verification(transactions)
        versions = api_versions.ApiVersionsHandler(
            lambda: self._routes, lambda: store.image, lambda: self.metadata.kraft_version
        )
        here: dict[int, Route] = {
            ApiKey.API_VERSIONS: Route(api_versions.VERSIONS, versions.handle),
            **self._data_routes(world, view, transactions, verification),
            **topic_routes(
                view,
                world.creation,
                groups,
                slices,
                is_deletion_enabled=self.config.delete_topic_enable,
            ),
            **replica_routes(store),
            **log_dir_routes(self._folders, moves, self._environment.disk, self._threads, slices),
            **cluster_routes(view, self.metadata.controller, store),
            **config_routes(store, self._live_config, clock, randomness, slices),
            **group_routes(world, view, groups, transactions, verification, slices),
            **transaction_routes(groups, transactions, store),
            **controller_routes(store),
            **security_routes(),
            **unsupported_routes(),
        }
        return self.metadata.routes(here)

    def _data_routes(
        self,
        world: CoordinatorWorld,
        view: MetadataView,
        transactions: TransactionServices,
        verification: TransactionVerification,
    ) -> dict[int, Route]:
        meters, slices = self.operations.meters, self._slices
        leaders = CurrentLeaders(lambda: view.image)
        old_formats = MessageFormatConversion(self._threads)
        return {
            **produce_routes(
                world,
                leaders,
                old_formats,
                self._threads,
                meters,
                transactions,
                verification,
                slices,
            ),
            **fetch_routes(
                world,
                view,
                self.config,
                old_formats,
                meters,
                self._throttles.leader,
                slices,
                self.metadata.metadata_fetch,
            ),
            **offset_routes(world, leaders, slices),
        }

    def _verification(self, transactions: TransactionServices) -> TransactionVerification:
        return TransactionVerification(
            self._environment.clock,
            self._notifier,
            lambda: self._live_config.current.transaction_partition_verification_enable,
            transactions.channel.enlist,
        )

    async def serve_until(self, stopping: asyncio.Event) -> None:
        """Wait until the broker is to stop, or raise why it cannot go on; `stop` it then."""
        await self.operations.watch_over(self.metadata.serve_until(stopping))

    async def stop(self) -> None:
        """Answer the requests in flight, close every log, and write clean-shutdown markers."""
        broker_epoch = self.metadata.broker_epoch
        self.operations.announce_stop()
        await self.metadata.depart()
        # After others lead: until then, other services send requests for this broker's partitions.
        await self.service.close()
        await self._close(broker_epoch)
        self.folder_locks.close()
        await self.operations.close()

    async def _give_up(self) -> None:
        """Close everything after a failed start; never raise, so that its reason is reported."""
        try:
            await self._close(self.metadata.broker_epoch)
        except Exception as error:  # noqa: BLE001 - it would hide why the start has failed
            _log.warning("not everything that was opened is closed: %r", error)

    async def _close(self, broker_epoch: int) -> None:
        """End all work, and close the logs, with clean-shutdown markers where they are true."""
        self._notifier.close()
        await self._server.stop()
        if self._coordinator is not None:
            self._coordinator.stop()
        if self._transactions is not None:
            self._transactions.stop()
        await self._replication.stop()
        await self._cleaner.stop()
        if self._moves is not None:
            await self._moves.stop()
        if self._background is not None:
            await self._background.stop()
        await self.metadata.close()
        await self._folders.stop()
        if self._are_logs_open and self.metadata.may_leave_cleanly:
            self._replication.close()
            self._log_dirs.close(self._environment.clock.now_ms(), broker_epoch)
        self._threads.shutdown()


class _DescriptorShares(NamedTuple):
    """How a broker divides its process's file descriptors.

    Logs and connections each have a share, so that new connections do not keep logs from being
    opened. The rest is for short-lived uses: indexes, directories, checkpoints. A log that could
    not open a file in the middle of a truncation would have to go offline.
    """

    logs: int
    """Files that are kept open. As many again may be in use by responses being sent."""
    connections: int


def _share_descriptors(descriptors_max: int) -> _DescriptorShares:
    logs = min(OPEN_FILES_MAX, descriptors_max // _DESCRIPTORS_SHARE // 2)
    reserved = min(RESERVED_DESCRIPTORS, descriptors_max // _DESCRIPTORS_SHARE)
    return _DescriptorShares(logs, descriptors_max - 2 * logs - reserved)


def _make_log_dirs(config: BrokerConfig, environment: Environment) -> LogDirs:
    shares = _share_descriptors(environment.descriptors_max)
    return LogDirs(environment.disk, config.log_dirs, open_files_max=shares.logs, guard=Lock())


def _connection_limits(config: BrokerConfig, environment: Environment) -> ConnectionLimits:
    connections_max = _share_descriptors(environment.descriptors_max).connections
    return ConnectionLimits.from_config(config, connections_max)


def _registration(
    config: BrokerConfig,
    advertised: tuple[Listener, ...],
    incarnation_id: bytes,
    directory_ids: tuple[bytes, ...],
) -> BrokerImage:
    """Return the registration of a broker incarnation, for clients and other brokers."""
    endpoints = tuple(
        Endpoint(listener.name, listener.host, listener.port, _PLAINTEXT_NUMBER)
        for listener in advertised
    )
    return BrokerImage(
        config.node_id,
        EPOCH_TO_BE_GIVEN,
        incarnation_id,
        endpoints,
        rack=config.broker_rack,
        log_dirs=directory_ids,
        levels_by_feature=CLAIMED_LEVELS,
    )
