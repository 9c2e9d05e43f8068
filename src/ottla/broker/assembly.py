"""The composition root: settings and an environment in, a running broker out."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Self

from ottla.broker.background import Background
from ottla.broker.dispatch import Dispatch
from ottla.broker.endpoints import Endpoints
from ottla.broker.flushing import Flushing
from ottla.broker.group_coordinator import GroupCoordinator
from ottla.broker.handlers import api_versions
from ottla.broker.image_follower import ImageFollower
from ottla.broker.limits import ConnectionLimits
from ottla.broker.metadata_store.embedded import EmbeddedMetadataStore
from ottla.broker.outgoing import ColdReads
from ottla.broker.partitions import Partitions
from ottla.broker.progress import Bells
from ottla.broker.routes import Route
from ottla.broker.server import Server
from ottla.broker.services import Services
from ottla.broker.topic_creation import TopicCreation
from ottla.broker.wiring.data import data_routes
from ottla.broker.wiring.groups import group_routes
from ottla.broker.wiring.topics import topic_routes
from ottla.environment.clock import Clock
from ottla.environment.disk import Disk
from ottla.environment.randomness import Randomness
from ottla.machines.controller.brokers import EPOCH_TO_BE_GIVEN
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.groups.settings import GroupSettings
from ottla.metadata.image import BrokerImage, Endpoint
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
        self._broker_epoch = await self._register(await self._bind())
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
        services = Services(
            config=self.config,
            clock=self._environment.clock,
            randomness=self._environment.randomness,
            broker_epoch=self._broker_epoch,
            store=self._store,
            log_dirs=self._log_dirs,
            partitions=self.partitions,
            endpoints=self.endpoints,
            bells=self._bells,
            flushing=flushing,
            creation=creation,
            coordinator=self._coordinator,
        )
        self._routes.update(self._make_routes(services))
        self._server.start()

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
        broker = BrokerImage(self.config.node_id, EPOCH_TO_BE_GIVEN, incarnation_id, endpoints)
        return await self._store.execute(lambda controller: controller.register_broker(broker))

    def _make_routes(self, services: Services) -> dict[int, Route]:
        """Return the whole table, which ApiVersions tells clients of."""
        versions = api_versions.ApiVersionsHandler(lambda: self._routes)
        return {
            ApiKey.API_VERSIONS: Route(api_versions.VERSIONS, versions.handle),
            **data_routes(services),
            **topic_routes(services),
            **group_routes(services),
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
