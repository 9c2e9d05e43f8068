"""The metadata of a broker: on its own disk, or in its cluster's ZooKeeper.

The two differ in when logs may be opened, how a broker registers, which broker decides, and in the
shutdown sequence. The assembly chooses one, and is otherwise independent of the choice.
"""

import asyncio
import logging
import math
import posixpath
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final, Protocol

from ottla.broker.controller.cluster_membership import Cluster
from ottla.broker.controller.controller_client import ActiveController
from ottla.broker.controller.metadata_log_client import ControllerMetadata
from ottla.broker.controller.request_forwarding import Forwarding
from ottla.broker.hosting.metadata_applier import ImageFollower
from ottla.broker.hosting.replication_wait import LEASE_IN_DOUBT
from ottla.broker.metadata_store.embedded.store import EmbeddedMetadataStore
from ottla.broker.metadata_store.meta_properties import claim_log_dirs
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.metadata_store.zookeeper.store import ZooKeeperMetadataStore
from ottla.broker.requests.routes import Route, Routes
from ottla.broker.startup.environment import Environment
from ottla.concurrency.first_of import first_of
from ottla.concurrency.notifier import Notifier
from ottla.environment.clock import Clock
from ottla.environment.disk import Disk
from ottla.environment.zookeeper import ZooKeeperSession
from ottla.machines.controller.settings import ControllerSettings
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.identifiers import BrokerId
from ottla.model.settings.broker_config import BrokerConfig
from ottla.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CorruptCheckpointError,
    read_clean_shutdown,
    read_text,
    write_atomically,
)
from ottla.storage.log_dirs.log_dirs import LogDirs

_log = logging.getLogger(__name__)

BOOT_ID_FILE: Final = ".ottla_boot_id"
_BYTES_MAX: Final = 1024


class LostTail:
    """Detects whether the ends of the logs may be missing since the broker last ran.

    Unsynced writes survive the death of the broker, but not of its machine. So a broker has lost
    nothing if it was stopped cleanly, or if the machine has not restarted since. For that the log
    dirs hold the id of the machine's start. It is written only when the cluster knows of earlier
    losses: a broker that is killed before reports them again.

    Read the marks before the logs are opened.
    """

    def __init__(self, disk: Disk, folders: Sequence[str], boot_id: str | None) -> None:
        self._disk = disk
        self._folders = folders
        self._boot_id = boot_id

    def may_be_lost(self) -> bool:
        """Return whether one of the log dirs may have lost records."""
        return any(
            not self._was_clean(log_dir) and not self._is_same_boot(log_dir)
            for log_dir in self._folders
        )

    def note_known(self) -> None:
        """Record on the disks, if possible, that the cluster knows of the loss."""
        if self._boot_id is not None:
            for log_dir in self._folders:
                with suppress(OSError):
                    path = posixpath.join(log_dir, BOOT_ID_FILE)
                    write_atomically(self._disk, path, self._boot_id.encode())

    def _was_clean(self, log_dir: str) -> bool:
        path = posixpath.join(log_dir, CLEAN_SHUTDOWN_FILE)
        try:
            return read_clean_shutdown(self._disk, path) is not None
        except (CorruptCheckpointError, OSError):
            return False

    def _is_same_boot(self, log_dir: str) -> bool:
        path = posixpath.join(log_dir, BOOT_ID_FILE)
        try:
            noted = read_text(self._disk, path, _BYTES_MAX)
        except (CorruptCheckpointError, OSError):
            return False
        return noted is not None and noted == self._boot_id


class MetadataMode(Protocol):
    """The broker's interface to its metadata. Belongs to one event loop."""

    @property
    def store(self) -> MetadataStore:
        """The metadata."""
        ...

    @property
    def controller(self) -> ActiveController:
        """The client of the controller."""
        ...

    @property
    def cluster(self) -> Cluster | None:
        """The parts that only a broker in a cluster needs."""
        ...

    @property
    def is_alone(self) -> bool:
        """Whether there are no other brokers, and never will be."""
        ...

    @property
    def directory_ids(self) -> tuple[bytes, ...]:
        """The ids of the usable log dirs, in their order."""
        ...

    @property
    def broker_epoch(self) -> int:
        """The epoch of this incarnation of the broker, once it is registered."""
        ...

    @property
    def may_leave_cleanly(self) -> bool:
        """Whether the cluster knows of all lost tails: a clean-shutdown marker would hide them."""
        ...

    async def follow_with(self, follower: ImageFollower) -> None:
        """Return when the logs are open; follow the metadata from then on."""
        ...

    async def register(self, broker: BrokerImage) -> None:
        """Return when the broker is one of the cluster, and its logs lead and follow."""
        ...

    def routes(self, here: Routes) -> dict[int, Route]:
        """Return the routes of this backend, given the routes for a single broker."""
        ...

    async def serve_until(self, stopping: asyncio.Event) -> None:
        """Wait until the broker is to stop; raise if it cannot continue before that."""
        ...

    async def depart(self) -> None:
        """Hand over leadership before this broker stops."""
        ...

    async def close(self) -> None:
        """Decide and follow nothing any more."""
        ...


async def open_metadata(
    config: BrokerConfig,
    environment: Environment,
    notifier: Notifier,
    threads: Executor,
    log_dirs: LogDirs,
) -> MetadataMode:
    """Open the metadata at its configured place.

    With ZooKeeper this waits until a server responds. ForeignLogDirError if the log dirs belong to
    another cluster, and the errors of `EmbeddedMetadataStore.open` and
    `ZooKeeperMetadataStore.open`.
    """
    if config.zookeeper_connect is None:
        return Embedded.open(config, environment, threads, log_dirs)
    return await InZooKeeper.open(config, environment, notifier, threads, log_dirs)


class Embedded:
    """The broker decides itself, by a store that has all metadata from the beginning."""

    cluster = None
    is_alone = True
    may_leave_cleanly = True

    def __init__(
        self,
        node_id: BrokerId,
        store: MetadataStore,
        directory_ids: tuple[bytes, ...],
        clock: Clock,
    ) -> None:
        self.store = store
        self.directory_ids = directory_ids
        self.broker_epoch = -1
        self.controller = ActiveController(node_id, lambda: self.broker_epoch, store, clock)
        self._follower: ImageFollower | None = None

    @classmethod
    def open(
        cls,
        config: BrokerConfig,
        environment: Environment,
        threads: Executor,
        log_dirs: LogDirs,
    ) -> "Embedded":
        """Open the metadata log in the first of the log dirs; OSError if that has failed."""
        first = log_dirs.dirs[0]

        def fail(path: str, error: OSError) -> None:
            log_dirs.fail(path, error)
            if path == first.path:
                why = f"the metadata is in {path}, which cannot be used: {error}"
                raise OSError(error.errno, why) from error

        if first.failure is not None:
            fail(first.path, first.failure)
        store = EmbeddedMetadataStore.open(
            environment.disk,
            log_dirs.online_paths,
            ControllerSettings.from_config(config),
            clock=environment.clock,
            randomness=environment.randomness,
            threads=threads,
            on_failed=fail,
        )
        return cls(config.node_id, store, store.identity.directory_ids, environment.clock)

    async def follow_with(self, follower: ImageFollower) -> None:
        """Open every log, and let it lead: all metadata is here."""
        self._follower = follower
        await follower.open_all(self.store.image)
        self.store.prepare_by(follower.prepare)
        self.store.subscribe(follower.on_change)

    async def register(self, broker: BrokerImage) -> None:
        """Register as the only broker of the cluster."""
        assert self._follower is not None
        self.broker_epoch = await self.store.execute(
            lambda controller: controller.register_broker(broker)
        )
        self._follower.registered()

    def routes(self, here: Routes) -> dict[int, Route]:
        """Answer everything here."""
        return dict(here)

    async def serve_until(self, stopping: asyncio.Event) -> None:
        """Wait until the broker is to stop."""
        await stopping.wait()

    async def depart(self) -> None:
        """Go: there are no others."""

    async def close(self) -> None:
        """Close the metadata log; all others are to be closed, too, if its disk has failed."""
        try:
            await self.store.close()
        except (ApiError, OSError) as error:
            _log.error("the metadata log is not closed: %s", error)


class InZooKeeper:
    """The broker is one of several. `open` it."""

    is_alone = False

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
        self.cluster = cluster
        self.controller = cluster.controller
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
        self._node_id = config.node_id
        self._shut_down_ms = _shut_down_ms(config)
        self._source = source
        self._threads = threads
        self._lost_tail = LostTail(environment.disk, folders, environment.boot_id)
        self._follower: ImageFollower | None = None
        self._may_be_lost = True
        self._has_begun = False
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
            rebalance_seconds=_rebalance_seconds(config),
        )
        store.on_doubt(lambda: notifier.notify(LEASE_IN_DOUBT))
        cluster = Cluster.of(config.node_id, store, source, network, clock, notifier, threads)
        try:
            return cls(config, environment, store, source, cluster, threads, log_dirs)
        except BaseException:
            await store.close()
            raise

    @property
    def broker_epoch(self) -> int:
        """The epoch of the registration, as long as there is one."""
        return self.store.broker_epoch

    @property
    def may_leave_cleanly(self) -> bool:
        """Whether the end of no log is missing, or the cluster has recorded it."""
        return not self._may_be_lost

    # -- the logs -------------------------------------------------------------------------------

    async def follow_with(self, follower: ImageFollower) -> None:
        """Open the logs before the broker registers: recovery may take long.

        They get their roles by the first image with this incarnation of the broker.
        """
        self._follower = follower
        self._may_be_lost = self._lost_tail.may_be_lost()
        if not self._may_be_lost:
            await self._note_boot()  # a broker that is killed while it opens logs loses nothing
        await follower.open_logs(await self.store.look_ahead())
        self.store.prepare_by(self._prepare)
        self.store.subscribe(self._on_change)
        self.store.on_session_lost(follower.resign)

    async def _prepare(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        assert self._follower is not None
        if self._has_begun:
            await self._follower.prepare(image, records)
        elif self._is_known_to(image):
            self._has_begun = True
            await self._follower.begin_with(image)

    def _on_change(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        assert self._follower is not None
        if self._has_begun:
            self._follower.on_change(image, records)

    def _is_known_to(self, image: ClusterImage) -> bool:
        own = image.brokers.get(self._node_id)
        return own is not None and own.broker_epoch == self.store.broker_epoch

    async def _note_boot(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, self._lost_tail.note_known)

    # -- being a broker -------------------------------------------------------------------------

    async def register(self, broker: BrokerImage) -> None:
        """Register, and wait until the controller has recorded it."""
        assert self._follower is not None
        running = self.store.run(broker, has_lost_tail=self._may_be_lost)
        self._running = asyncio.ensure_future(running)
        await first_of(self.store.wait_until_in_service(), self._wait_for_failure())
        if self._may_be_lost:
            await self._note_boot()
            self._may_be_lost = False
        self._follower.registered()

    def routes(self, here: Routes) -> dict[int, Route]:
        """Forward requests for the controller."""
        return Forwarding(self.controller).routes(here)

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
                    self.cluster.controlled_shutdown.grant, self._shut_down_ms
                )
            except ApiError as error:
                _log.warning("stopping while this broker leads: %s", error)
        self.cluster.channel.close()

    async def close(self) -> None:
        """Leave the cluster."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        self.cluster.channel.close()
        self._source.close()
        await self.store.close()


def _rebalance_seconds(config: BrokerConfig) -> float:
    """Return the interval of the controller's preferred leader checks."""
    is_on = config.auto_leader_rebalance_enable
    return config.leader_imbalance_check_interval_seconds if is_on else math.inf


def _shut_down_ms(config: BrokerConfig) -> int:
    """Return how long a broker that stops waits for others to lead."""
    tries = config.controlled_shutdown_max_retries if config.controlled_shutdown_enable else 0
    return tries * config.controlled_shutdown_retry_backoff_ms
