"""The part of a node that every role needs: a replica of the metadata log, and the store above it.

A controller has a listener, too, and registers with the active controller. The listener answers
before this node knows a leader: an election needs the votes of all.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from ottla.broker.controller.active_duties import ActiveDuties
from ottla.broker.controller.brokers_in_zookeeper import BrokersInZooKeeper
from ottla.broker.controller.controller_connection import ChannelToController
from ottla.broker.controller.controller_registration import ControllerRegistration
from ottla.broker.controller.quorum_propagation import QuorumPropagation
from ottla.broker.dispatch import Dispatch
from ottla.broker.metadata_store.migration.migration import Migration
from ottla.broker.metadata_store.quorum.snapshot_writer import SnapshotSettings
from ottla.broker.metadata_store.quorum.store import QuorumMetadataStore
from ottla.broker.quorum.formatting import read_bootstrap
from ottla.broker.quorum.quorum_log import LogSettings
from ottla.broker.quorum.quorum_replica import QuorumReplica
from ottla.broker.quorum.replica_files import FirstVoters
from ottla.broker.quorum.replica_life import ReplicaWorld
from ottla.broker.requests.request_metrics import Meters
from ottla.broker.requests.routes import Route, Routes
from ottla.broker.startup.cluster_settings import rebalance_seconds
from ottla.broker.startup.environment import Environment
from ottla.broker.startup.quorum.formatted_dir import NodeIdentity, node_identity
from ottla.broker.startup.quorum.listener_routes import ListenerWorld, listener_routes
from ottla.broker.startup.quorum.quorum_watch import QuorumWatch
from ottla.broker.transport.connection_limits import ConnectionLimits
from ottla.broker.transport.response_writer import ColdReads
from ottla.broker.transport.server import Server
from ottla.concurrency.first_of import first_of
from ottla.concurrency.yield_budget import TimeSlices
from ottla.environment.disk import Disk, File
from ottla.machines.controller.settings import ControllerSettings
from ottla.metadata.image import Endpoint
from ottla.metadata.record_frames import metadata_records_of
from ottla.metadata.records import MetadataRecord
from ottla.model.identifiers import BrokerId, LeaderEpoch, Offset
from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.listeners import Listener
from ottla.raft import voters as quorum
from ottla.raft.settings import Identity, QuorumSettings
from ottla.raft.snapshots import SnapshotId
from ottla.storage.log_dirs.log_dirs import lock_log_dir

_log = logging.getLogger(__name__)
PLAINTEXT: Final = 0
_NO_LISTENERS: Final[tuple[Listener, ...]] = ()


@dataclass(frozen=True, slots=True)
class NodeWorld:
    """The dependencies of a node."""

    config: BrokerConfig
    environment: Environment
    threads: Executor
    meters: Meters
    cold_reads: ColdReads


class QuorumNode:
    """Open it, run `serve_until_failure`, and close it. Belongs to one event loop."""

    def __init__(
        self,
        world: NodeWorld,
        identity: NodeIdentity,
        server: Server | None,
        advertised: tuple[Listener, ...],
        replica: QuorumReplica,
        store: QuorumMetadataStore,
        migration: Migration | None,
    ) -> None:
        config, environment = world.config, world.environment
        self.cluster_id = identity.cluster_id
        self.replica = replica
        self.store = store
        self.advertised = advertised
        """The listeners for controllers, as other nodes reach them."""
        self.routes: Routes = {}
        """The table of the listener for controllers."""
        self.broker_offset: Callable[[], Offset | None] = lambda: None
        """The end offset of the image of this node's broker, if it has one."""
        self._world = world
        self._migration = migration
        self._server = server
        self._opened = AsyncExitStack()
        self._channels: list[ChannelToController] = []
        self._duties = ActiveDuties(
            store,
            environment.clock,
            rebalance_seconds=rebalance_seconds(config),
            imbalance_percentage=config.leader_imbalance_per_broker_percentage,
        )
        self.propagation = QuorumPropagation(
            config.node_id, store, replica, environment.clock, self._broker_offset
        )
        self._running: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, world: NodeWorld) -> Self:
        """Open the replica, and let it take part.

        ForeignLogDirError for a directory that is not this node's, DamagedReplicaError or OSError
        if it cannot be used.
        """
        disk, config = world.environment.disk, world.config
        slices = TimeSlices(world.environment.clock)
        routes: dict[int, Route] = {}
        async with AsyncExitStack() as opened:
            lock = _lock(disk, config)
            if lock is not None:
                opened.callback(lock.close)
            identity = node_identity(disk, config)
            server, advertised = None, _NO_LISTENERS
            if config.is_controller:
                server = _new_server(world, routes, slices)
                opened.push_async_callback(server.stop)
                advertised = await _bind(world, server)
            failures: list[Callable[[Exception], None]] = []
            replica = await _open_replica(world, identity, advertised, failures)
            migration = _migration(world, identity, advertised)
            store = _open_store(world, identity, replica)
            if migration is not None:
                store.migrate_by(migration)
            node = cls(world, identity, server, advertised, replica, store, migration)
            failures.append(node.fail)
            replica.listen(node)
            if server is not None:
                routes.update(listener_routes(node.listener_world(slices)))
                node.routes = routes
                server.start()
            node._running = asyncio.ensure_future(node._run())
            node._opened = opened.pop_all()
        return node

    def listener_world(self, slices: TimeSlices) -> ListenerWorld:
        """Return the parts of this node for the handlers of its listener."""
        environment, spread = self._world.environment, self.propagation.spread
        old_brokers = None
        if self._migration is not None:
            old_brokers = BrokersInZooKeeper(
                self._world.config.node_id, self._migration, environment.clock, self._world.threads
            )
        return ListenerWorld(
            self._world.config,
            self.replica,
            self.store,
            environment.clock,
            environment.randomness,
            slices,
            spread if old_brokers is None else old_brokers.spread_after(spread),
            old_brokers,
        )

    # -- the listener of the replica ------------------------------------------------------------

    def on_leader(self, _epoch: LeaderEpoch, _leader_id: BrokerId | None) -> None:
        """Send requests for the controller to the new leader from now on."""
        for channel in self._channels:
            channel.look_again()

    def on_committed(self, high_watermark: Offset) -> None:
        """Take note of nothing: the store does."""

    def on_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Take note of nothing: the store does."""

    # -- the controller -------------------------------------------------------------------------

    @property
    def server(self) -> Server:
        """The server of a controller."""
        assert self._server is not None, "this node is no controller"
        return self._server

    def new_channel(self) -> ChannelToController:
        """Return a connection of its own to the active controller, wherever that is."""
        config, network = self._world.config, self._world.environment.network
        channel = ChannelToController(config.node_id, network, self._find)
        self._channels.append(channel)
        return channel

    def _broker_offset(self) -> Offset | None:
        return self.broker_offset()

    def _find(self) -> Endpoint | None:
        leader = self.replica.leader
        if leader is None:
            return None
        name = self._world.config.controller_listener_names[0]
        return Endpoint(name, leader.host, leader.port, PLAINTEXT)

    @property
    def controller_id(self) -> int:
        """The id of the leader of the quorum; -1 if it is unknown."""
        leader = self.replica.leader
        return -1 if leader is None or leader.node_id is None else leader.node_id

    # -- from start to end ----------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """End this node: its replica cannot go on."""
        if not self._failed.done():
            self._failed.set_exception(error)

    async def wait_for_failure(self) -> None:
        """Wait until this node cannot go on, and raise the reason."""
        assert self._running is not None
        await asyncio.wait([self._running])
        self._running.result()

    async def _run(self) -> None:
        config, environment = self._world.config, self._world.environment
        watch = QuorumWatch(config, self.cluster_id, self.replica, environment.clock)
        works = [self.store.run(), _result_of(self._failed), watch.run()]
        if self._server is not None:
            registration = ControllerRegistration(
                config.node_id,
                environment.randomness.uuid(),
                self.advertised,
                self.store,
                self.new_channel(),
                is_zk_migration_ready=self._migration is not None,
            )
            works += [self._duties.run(), registration.run()]
        await first_of(*works)

    async def close(self) -> None:
        """Resign if this node leads the quorum, and close the log. Never raises."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
            if not self._running.cancelled() and self._running.exception() is not None:
                _log.debug("the node has failed: %r", self._running.exception())
        await self.store.close()
        for channel in self._channels:
            channel.close()
        try:
            await self.replica.close()
        except Exception as error:  # noqa: BLE001 - the rest is to be closed, too
            _log.error("the metadata log is not closed: %r", error)
        # The listener at last: the successor of this leader needs votes.
        await self._opened.aclose()


def _lock(disk: Disk, config: BrokerConfig) -> File | None:
    """Lock the metadata directory of a broker; its log dirs are locked already."""
    folder = config.metadata_folder
    return None if folder in config.log_dirs else lock_log_dir(disk, folder)


async def _result_of(future: "asyncio.Future[None]") -> None:
    await asyncio.shield(future)


def _new_server(world: NodeWorld, routes: dict[int, Route], slices: TimeSlices) -> Server:
    clock = world.environment.clock
    return Server(
        Dispatch.of(routes, clock, world.meters, slices),
        slices,
        ConnectionLimits.from_config(world.config),
        clock,
        world.cold_reads,
        world.threads,
        world.environment.network,
    )


async def _bind(world: NodeWorld, server: Server) -> tuple[Listener, ...]:
    """Bind the listeners for controllers; return their addresses for other nodes."""
    config = world.config
    ports = {one.name: await server.bind(one) for one in config.controller_listeners}
    return config.controllers_to_advertise(ports, world.environment.host_name)


async def _open_replica(
    world: NodeWorld,
    identity: NodeIdentity,
    advertised: tuple[Listener, ...],
    failures: list[Callable[[Exception], None]],
) -> QuorumReplica:
    config, environment = world.config, world.environment

    def on_failed(error: Exception) -> None:
        _log.error("the metadata log cannot go on: %r", error)
        for fail in failures:
            fail(error)

    return await QuorumReplica.open(
        ReplicaWorld(
            environment.disk,
            environment.network,
            environment.clock,
            environment.randomness,
            world.threads,
        ),
        config.metadata_folder,
        Identity(
            quorum.ReplicaKey(config.node_id, identity.directory_id),
            identity.cluster_id,
            _endpoints(config, advertised),
            config.controller_quorum_bootstrap_servers,
            is_controller=config.is_controller,
        ),
        settings=QuorumSettings(
            election_timeout_ms=config.controller_quorum_election_timeout_ms,
            fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
            election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
            request_timeout_ms=config.controller_quorum_request_timeout_ms,
            retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
            fetch_bytes_max=config.controller_quorum_fetch_max_bytes,
            snapshot_bytes_max=config.controller_quorum_fetch_snapshot_max_bytes,
            has_auto_join=config.controller_quorum_auto_join_enable,
        ),
        log_settings=LogSettings(
            segment_bytes=config.metadata_log_segment_bytes,
            segment_ms=config.metadata_log_segment_ms,
            retention_bytes=config.metadata_max_retention_bytes,
            retention_ms=config.metadata_max_retention_ms,
        ),
        first=_first_voters(config),
        on_failed=on_failed,
    )


def _endpoints(
    config: BrokerConfig, advertised: tuple[Listener, ...]
) -> tuple[quorum.Endpoint, ...]:
    """Return the addresses of a controller; the first is on the listener of the quorum.

    A broker has no address there, and gives the name of the listener alone.
    """
    if not advertised:
        return (quorum.Endpoint(config.controller_listener_names[0], "", 0),)
    return tuple(quorum.Endpoint(*one) for one in advertised)


def _first_voters(config: BrokerConfig) -> FirstVoters:
    """Return the voters of `controller.quorum.voters`, which have no directory ids."""
    name = config.controller_listener_names[0]
    return FirstVoters(
        quorum.VoterSet(
            tuple(
                quorum.Voter(quorum.ReplicaKey(one.id), (quorum.Endpoint(name, *one.address),))
                for one in sorted(config.controller_quorum_voters)
            )
        )
    )


def _migration(
    world: NodeWorld, identity: NodeIdentity, advertised: tuple[Listener, ...]
) -> Migration | None:
    """Return the part of a controller in a migration from ZooKeeper, if its settings ask for it."""
    config, environment = world.config, world.environment
    hosts, connect = config.zookeeper_connect, environment.connect_to_zookeeper
    if not config.is_migrating or hosts is None:
        return None
    assert connect is not None, "this environment has no way to ZooKeeper"
    return Migration(
        partial(connect, hosts, config.zookeeper_session_timeout_ms / 1000),
        hosts,
        identity.cluster_id,
        config.node_id,
        (advertised[0].host, advertised[0].port),
        environment.clock,
    )


def _open_store(
    world: NodeWorld, identity: NodeIdentity, replica: QuorumReplica
) -> QuorumMetadataStore:
    config, environment = world.config, world.environment

    def bootstrap() -> list[MetadataRecord]:
        batches = read_bootstrap(environment.disk, config.metadata_folder)
        return [record for batch in batches for record in metadata_records_of(batch)]

    return QuorumMetadataStore(
        identity.cluster_id,
        replica,
        ControllerSettings.from_config(config),
        clock=environment.clock,
        threads=world.threads,
        bootstrap=bootstrap,
        snapshots=SnapshotSettings(
            config.metadata_log_max_record_bytes_between_snapshots,
            config.metadata_log_max_snapshot_interval_ms,
        ),
        idle_ms=config.metadata_max_idle_interval_ms,
    )
