"""Metadata in ZooKeeper: several brokers form a cluster, and elect the controller."""

import asyncio
import logging
from concurrent.futures import Executor

from ottla.broker.controller.cluster_membership import Cluster
from ottla.broker.controller.metadata_log_client import ControllerMetadata
from ottla.broker.controller.request_forwarding import Forwarding
from ottla.broker.hosting.metadata_applier import MetadataApplier
from ottla.broker.hosting.replication_wait import LEASE_IN_DOUBT
from ottla.broker.metadata_store.meta_properties import claim_log_dirs
from ottla.broker.metadata_store.zookeeper.store import ZooKeeperMetadataStore
from ottla.broker.quorum.formatting import forget_metadata_log
from ottla.broker.requests.routes import Route, Routes
from ottla.broker.startup.cluster_settings import rebalance_seconds, shut_down_ms
from ottla.broker.startup.controller_routes import routes_for_brokers
from ottla.broker.startup.environment import Environment
from ottla.broker.startup.incarnation import Incarnation
from ottla.broker.startup.lost_tail import LostTail
from ottla.concurrency.first_of import first_of
from ottla.concurrency.notifier import Notifier
from ottla.environment.zookeeper import ZooKeeperSession
from ottla.machines.controller.settings import ControllerSettings
from ottla.metadata.image import BrokerImage
from ottla.model.api_error import ApiError
from ottla.model.settings.broker_config import BrokerConfig
from ottla.storage.log_dirs.log_dirs import LogDirs

_log = logging.getLogger(__name__)


class InZooKeeper:
    """The broker is one of several. `open` it."""

    is_alone = False
    kraft_version = 0

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        store: ZooKeeperMetadataStore,
        source: ControllerMetadata,
        cluster: Cluster,
        threads: Executor,
        log_dirs: LogDirs,
    ) -> None:
        """Claim the log dirs; raises ForeignLogDirError if one belongs to another broker."""
        self.store = store
        self.controller = cluster.controller
        self.spread = cluster.spread
        self.metadata_fetch = cluster.metadata_fetch
        self._cluster = cluster
        self._inter_broker_listener = config.inter_broker_listener
        identity = claim_log_dirs(
            environment.disk,
            log_dirs.online_paths,
            config.node_id,
            environment.randomness,
            store.cluster_id,
            log_dirs.fail,
        )
        folders = log_dirs.online_paths
        self.directory_ids = identity.directory_ids
        self._disk = environment.disk
        self._metadata_folder = config.metadata_folder
        self._shut_down_ms = shut_down_ms(config)
        self._source = source
        self._incarnation = Incarnation(
            config.node_id,
            lambda: store.broker_epoch,
            LostTail(environment.disk, folders, environment.boot_id),
            threads,
        )
        self._running: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        config: BrokerConfig,
        environment: Environment,
        notifier: Notifier,
        threads: Executor,
        log_dirs: LogDirs,
    ) -> "InZooKeeper":
        """Begin a session, and make all that a broker among others needs."""
        hosts, connect = config.zookeeper_connect, environment.connect_to_zookeeper
        assert hosts is not None
        assert connect is not None, "this environment has no way to ZooKeeper"
        session_seconds = config.zookeeper_session_timeout_ms / 1000

        async def begin() -> ZooKeeperSession:
            return await connect(hosts, session_seconds)

        network, clock = environment.network, environment.clock
        source = ControllerMetadata(
            config.node_id, lambda: store.broker_epoch, config.inter_broker_listener, network
        )
        store = await ZooKeeperMetadataStore.open(
            begin,
            ControllerSettings.from_config(config),
            source,
            clock=clock,
            randomness=environment.randomness,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            rebalance_seconds=rebalance_seconds(config),
        )
        store.on_doubt(lambda: notifier.notify(LEASE_IN_DOUBT))
        cluster = Cluster.of(config.node_id, store, source, network, clock, notifier, threads)
        try:
            return cls(config, environment, store, source, cluster, threads, log_dirs)
        except BaseException:
            await store.close()
            raise

    def has_valid_lease(self) -> bool:
        """Return whether the session cannot have expired."""
        return self.store.is_session_confirmed

    @property
    def broker_epoch(self) -> int:
        """The epoch of the registration, as long as there is one."""
        return self.store.broker_epoch

    @property
    def may_leave_cleanly(self) -> bool:
        """Whether the end of no log is missing, or the cluster has recorded it."""
        return not self._incarnation.may_have_lost_tail

    async def follow_with(self, follower: MetadataApplier) -> None:
        """Open the logs; they get their roles once the broker is registered."""
        await self._incarnation.open_logs(follower, await self.store.look_ahead())
        self._incarnation.follow(self.store)
        self.store.on_session_lost(follower.resign)

    # -- being a broker -------------------------------------------------------------------------

    async def register(self, broker: BrokerImage) -> None:
        """Register, and wait until the controller has recorded it."""
        running = self.store.run(broker, has_lost_tail=self._incarnation.may_have_lost_tail)
        self._running = asyncio.ensure_future(running)
        await first_of(self.store.wait_until_in_service(), self._wait_for_failure())
        await self._incarnation.registered()
        if self.store.knows_migration:
            # This broker has left a quorum: the next quorum has another log. Without a migration
            # the log may be the only one of a converted cluster, and must stay.
            forget_metadata_log(self._disk, self._metadata_folder)

    def routes(self, here: Routes) -> dict[int, Route]:
        """Add the requests of other brokers, and forward requests for the controller."""
        whole: dict[int, Route] = {
            **here,
            **routes_for_brokers(
                self.store, self._cluster, self._inter_broker_listener, lambda: whole
            ),
        }
        return Forwarding(self.controller).routes(whole)

    async def serve_until(self, stopping: asyncio.Event) -> None:
        """Wait until the broker is to stop; raise why the store does not go on."""
        await first_of(stopping.wait(), self._wait_for_failure())

    async def _wait_for_failure(self) -> None:
        assert self._running is not None
        await asyncio.wait([self._running])
        self._running.result()

    async def depart(self) -> None:
        """Hand over leaderships, as far as the controller can be reached."""
        if self._shut_down_ms and self._running is not None and not self._running.done():
            try:
                await self.controller.shut_down(
                    self._cluster.controlled_shutdown.grant, self._shut_down_ms
                )
            except ApiError as error:
                _log.warning("stopping while this broker leads: %s", error)
        self._cluster.channel.close()

    async def close(self) -> None:
        """Leave the cluster."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        self._cluster.channel.close()
        self._source.close()
        await self.store.close()
