"""Metadata from a quorum of controllers: the node may be a controller, too."""

import asyncio
import logging
from concurrent.futures import Executor
from typing import Final

from ottla.broker.controller.broker_lifecycle import BrokerLifecycle, LifecycleSettings
from ottla.broker.controller.controller_client import ActiveController
from ottla.broker.controller.request_forwarding import Forwarding
from ottla.broker.hosting.metadata_applier import MetadataApplier
from ottla.broker.hosting.replication_wait import LEASE_IN_DOUBT
from ottla.broker.metadata_store.meta_properties import claim_log_dirs
from ottla.broker.metadata_store.quorum.broker_store import BrokerMetadataStore
from ottla.broker.requests.routes import Route, Routes
from ottla.broker.startup.cluster_settings import shut_down_ms
from ottla.broker.startup.environment import Environment
from ottla.broker.startup.incarnation import Incarnation
from ottla.broker.startup.lost_tail import LostTail
from ottla.broker.startup.quorum.listener_routes import quorum_routes
from ottla.broker.startup.quorum.quorum_node import QuorumNode
from ottla.concurrency.first_of import first_of, pause_seconds
from ottla.concurrency.notifier import Notifier
from ottla.machines.controller.features import CLAIMED_LEVELS
from ottla.metadata.image import BrokerImage
from ottla.model.identifiers import Offset
from ottla.model.settings.broker_config import BrokerConfig
from ottla.storage.log_dirs.log_dirs import LogDirs
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest, Feature
from ottla.wire.messages.broker_registration import Listener as RegisteredListener

NO_EPOCH: Final = -1
IN_SERVICE_LOOK_SECONDS: Final = 0.01
_log = logging.getLogger(__name__)


class InQuorum:
    """The broker of a node. `open` it."""

    is_alone = False
    metadata_fetch = None

    def __init__(
        self,
        node: QuorumNode,
        config: BrokerConfig,
        environment: Environment,
        notifier: Notifier,
        threads: Executor,
        log_dirs: LogDirs,
    ) -> None:
        """Claim the log dirs; raises ForeignLogDirError if one belongs to another broker."""
        self.node = node
        self.store = BrokerMetadataStore(node.store)
        node.broker_offset = lambda: self.store.image.end_offset
        self.spread = node.propagation.spread
        identity = claim_log_dirs(
            environment.disk,
            log_dirs.online_paths,
            config.node_id,
            environment.randomness,
            node.cluster_id,
            log_dirs.fail,
        )
        self.directory_ids = identity.directory_ids
        self._node_id = config.node_id
        self._shut_down_ms = shut_down_ms(config)
        self._lifecycle = BrokerLifecycle(
            config.node_id,
            node.new_channel(),
            environment.clock,
            LifecycleSettings.from_config(config),
            self._published_offset,
            lambda: notifier.notify(LEASE_IN_DOUBT),
        )

        def broker_epoch() -> int:
            return self._lifecycle.broker_epoch

        self.controller = ActiveController(
            config.node_id,
            broker_epoch,
            self.store,
            environment.clock,
            node.new_channel(),
            lambda: node.store.is_active,
            lambda: node.controller_id,
        )
        lost_tail = LostTail(environment.disk, log_dirs.online_paths, environment.boot_id)
        self._incarnation = Incarnation(config.node_id, broker_epoch, lost_tail, threads)
        self._keeping_alive: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        node: QuorumNode,
        config: BrokerConfig,
        environment: Environment,
        notifier: Notifier,
        threads: Executor,
        log_dirs: LogDirs,
    ) -> "InQuorum":
        """Wait until the node has the metadata of a quorum with a leader; take the node over."""
        try:
            await first_of(node.store.wait_until_caught_up(), node.wait_for_failure())
            return cls(node, config, environment, notifier, threads, log_dirs)
        except BaseException:
            await node.close()
            raise

    def _published_offset(self) -> Offset:
        return Offset(self.store.image.end_offset - 1)

    @property
    def broker_epoch(self) -> int:
        """The epoch of the registration; -1 before there is one."""
        return self._lifecycle.broker_epoch

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version in the log."""
        return self.node.replica.kraft_version

    @property
    def may_leave_cleanly(self) -> bool:
        """Whether the end of no log is missing, or the cluster has recorded it."""
        return not self._incarnation.may_have_lost_tail

    def has_valid_lease(self) -> bool:
        """Return whether no controller can have fenced this broker for its silence."""
        return self._lifecycle.has_valid_lease()

    async def follow_with(self, follower: MetadataApplier) -> None:
        """Open the logs; they get their roles once the broker is registered."""
        await self._incarnation.open_logs(follower, self.store.image)
        self._incarnation.follow(self.store)
        self.store.subscribe(self._lifecycle.on_change)

    # -- being a broker -------------------------------------------------------------------------

    async def register(self, broker: BrokerImage) -> None:
        """Register, and wait until the broker is in service."""
        await self._lifecycle.register(self._request(broker))
        self._keeping_alive = asyncio.ensure_future(
            first_of(self._lifecycle.keep_alive(), self._lifecycle.watch_lease())
        )
        await first_of(self._wait_until_in_service(), self._wait_for_failure())
        await self._incarnation.registered()

    def _request(self, broker: BrokerImage) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=broker.broker_id,
            cluster_id=self.node.cluster_id,
            incarnation_id=broker.incarnation_id,
            listeners=[
                RegisteredListener(
                    name=one.name,
                    host=one.host,
                    port=one.port,
                    security_protocol=one.security_protocol,
                )
                for one in broker.endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=first, max_supported_version=last)
                for name, (first, last) in CLAIMED_LEVELS.items()
            ],
            rack=broker.rack,
            log_dirs=list(broker.log_dirs),
            previous_broker_epoch=self._previous_epoch(),
        )

    def _previous_epoch(self) -> int:
        """Return the epoch of the former incarnation, if its logs are here to their ends.

        A broker that was killed has lost nothing if its machine goes on. With other log dirs than
        before, its logs are not here.
        """
        known = self.store.image.brokers.get(self._node_id)
        is_here = known is not None and set(known.log_dirs) <= set(self.directory_ids)
        if known is None or not is_here or self._incarnation.may_have_lost_tail:
            return NO_EPOCH
        return known.broker_epoch

    async def _wait_until_in_service(self) -> None:
        while not self._is_in_service():
            await pause_seconds(IN_SERVICE_LOOK_SECONDS)

    def _is_in_service(self) -> bool:
        own = self.store.image.brokers.get(self._node_id)
        return own is not None and own.broker_epoch == self.broker_epoch and not own.is_fenced

    def routes(self, here: Routes) -> dict[int, Route]:
        """Add requests about the quorum, and forward requests for the controller."""
        quorum = quorum_routes(self.node.replica, self.store)
        return Forwarding(self.controller).routes({**here, **quorum})

    async def serve_until(self, stopping: asyncio.Event) -> None:
        """Wait until the broker is to stop; raise the reason if it cannot go on."""
        await first_of(stopping.wait(), self._wait_for_failure())

    async def _wait_for_failure(self) -> None:
        assert self._keeping_alive is not None
        await first_of(
            self.node.wait_for_failure(),
            self.store.wait_for_failure(),
            _end_of(self._keeping_alive),
        )

    async def depart(self) -> None:
        """Hand over leaderships, as far as a controller can be reached."""
        if self._shut_down_ms and self._keeping_alive is not None:
            try:
                async with asyncio.timeout(self._shut_down_ms / 1000):
                    await self._lifecycle.depart()
            except TimeoutError:
                _log.warning("stopping while this broker leads: no controller has let it go")

    async def close(self) -> None:
        """Leave the cluster: the active controller has let this broker go, or will fence it."""
        if self._keeping_alive is not None:
            self._keeping_alive.cancel()
            await asyncio.wait([self._keeping_alive])
        await self.node.close()
        await self.store.close()


async def _end_of(task: "asyncio.Task[None]") -> None:
    await asyncio.wait([task])
    task.result()
