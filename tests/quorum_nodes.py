"""A node of a quorum without anything above it: a replica, and a listener for its requests."""

import asyncio
from collections import Counter
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import replace
from typing import Any, cast

from ottla.broker.dispatch import Dispatch
from ottla.broker.quorum.quorum_log import LogSettings
from ottla.broker.quorum.quorum_replica import QuorumReplica
from ottla.broker.quorum.replica_files import FirstVoters
from ottla.broker.quorum.replica_life import ReplicaWorld
from ottla.broker.requests.request_context import RequestContext
from ottla.broker.requests.request_metrics import Meters
from ottla.broker.requests.routes import Route, offered_versions
from ottla.broker.transport.connection_limits import ConnectionLimits
from ottla.broker.transport.response_writer import ColdReads
from ottla.broker.transport.server import Server
from ottla.concurrency.yield_budget import TimeSlices
from ottla.environment.clock import Clock
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, LeaderEpoch, Offset
from ottla.model.settings.listeners import Listener
from ottla.raft.settings import Identity, QuorumSettings
from ottla.raft.snapshots import SnapshotId
from ottla.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.wire.api_key import ApiKey
from ottla.wire.apis import API_BY_KEY
from ottla.wire.messages.api_versions import ApiVersionsResponse, SupportedFeatureKey
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import build_batch
from ottla.wire.records.record import Record, records_of
from ottla.wire.schema import Message

LISTENER = "CONTROLLER"
CLUSTER = "cluster-of-the-tests"
QUORUM_APIS = (
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
    ApiKey.DESCRIBE_QUORUM,
)


def voter(node_id: int, host: str, port: int, directory_id: bytes) -> Voter:
    return Voter(ReplicaKey(node_id, directory_id), (Endpoint(LISTENER, host, port),))


def batch_of(*values: bytes, time_ms: int = 0) -> bytes:
    return build_batch([Record(index, time_ms, None, value) for index, value in enumerate(values)])


def values_of(found: list[RecordBatch]) -> list[bytes]:
    """Return the values of the data batches."""
    data = [batch for batch in found if not batch.is_control]
    return [record.value or b"" for batch in data for record in records_of(batch)]


class Watcher:
    """Notes all changes, and wakes tests that wait for one."""

    def __init__(self) -> None:
        self.leaders: list[tuple[int, int | None]] = []
        self.committed: list[int] = []
        self.snapshots: list[SnapshotId] = []
        self.changed = asyncio.Event()

    def on_leader(self, epoch: LeaderEpoch, leader_id: BrokerId | None) -> None:
        self.leaders.append((epoch, leader_id))
        self._wake()

    def on_committed(self, high_watermark: Offset) -> None:
        self.committed.append(high_watermark)
        self._wake()

    def on_snapshot(self, snapshot_id: SnapshotId) -> None:
        self.snapshots.append(snapshot_id)
        self._wake()

    def _wake(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class QuorumNode:
    """A running replica and its listener."""

    def __init__(
        self,
        replica: QuorumReplica,
        server: Server,
        clock: Clock,
        failures: list[Exception],
    ) -> None:
        self.replica = replica
        self.asked: Counter[str] = Counter()
        """The requests that came through the listener, by their type."""
        self._clock = clock
        self._context = copy_context()
        self.watcher = Watcher()
        replica.listen(self.watcher)
        self.failures = failures
        self._server = server

    @classmethod
    async def start(
        cls,
        world: ReplicaWorld,
        metadata_dir: str,
        own: Voter,
        *,
        cold_reads: ColdReads,
        threads: Executor | None,
        first: FirstVoters | None = None,
        settings: QuorumSettings | None = None,
        log_settings: LogSettings | None = None,
        bootstrap: tuple[Any, ...] = (),
        is_controller: bool = True,
        cluster_id: str = CLUSTER,
        vote_version_max: int | None = None,
    ) -> "QuorumNode":
        failures: list[Exception] = []
        routes: dict[int, Route] = {}
        slices = TimeSlices(world.clock)
        server = Server(
            Dispatch.of(routes, world.clock, Meters(), slices),
            slices,
            ConnectionLimits(),
            world.clock,
            cold_reads,
            cast("Executor", threads),
            world.network,
        )
        endpoint = own.endpoints[0]
        await server.bind(Listener(LISTENER, endpoint.host, endpoint.port))
        replica = await QuorumReplica.open(
            world,
            metadata_dir,
            Identity(own.key, cluster_id, own.endpoints, bootstrap, is_controller=is_controller),
            settings=settings or QuorumSettings(),
            log_settings=log_settings or LogSettings(),
            first=first or FirstVoters(),
            on_failed=failures.append,
        )
        node = cls(replica, server, world.clock, failures)
        add_routes(routes, replica, node.asked)
        if vote_version_max is not None:
            vote = routes[ApiKey.VOTE]
            routes[ApiKey.VOTE] = replace(vote, versions=range(vote_version_max + 1))
        server.start()
        return node

    def propose(self, *values: bytes) -> int:
        """Propose a batch, as code of the node's process."""
        batch = batch_of(*values, time_ms=self._clock.now_ms())
        return self._context.run(self.replica.propose, batch)

    def upgrade_kraft_version(self, level: int) -> int | None:
        """Raise kraft.version, as code of the node's process."""
        upgrade = self.replica.upgrade_kraft_version
        return self._context.run(upgrade, level, is_validated_only=False)

    async def handle(self, request: Message, version: int | None = None) -> Any:
        """Answer a request, as code of the node's process."""
        loop = asyncio.get_running_loop()
        answering = self.replica.handle(request, version)
        return await loop.create_task(answering, context=self._context)

    async def save_snapshot(self, end_offset: Offset, *batches: bytes) -> SnapshotId:
        """Save a snapshot, as code of the node's process."""
        loop = asyncio.get_running_loop()
        saving = self.replica.save_snapshot(end_offset, batches)
        return await loop.create_task(saving, context=self._context)

    async def committed(self, offset: int) -> None:
        """Wait until the replica knows a record as committed."""
        while self.replica.high_watermark <= offset:
            await self.watcher.changed.wait()

    async def leads(self) -> None:
        """Wait until the replica leads, and has committed in its epoch."""
        while not self.replica.is_leader or self.replica.high_watermark < self.replica.end_offset:
            await self.watcher.changed.wait()

    async def knows_leader(self) -> int:
        """Wait until the replica knows a leader."""
        while self.replica.leader is None:
            await self.watcher.changed.wait()
        return cast("int", self.replica.leader.node_id)

    def values(self) -> list[bytes]:
        """Return the committed values, from the newest snapshot on."""
        found: list[RecordBatch] = []
        offset = Offset(0)
        snapshot = self.replica.newest_snapshot()
        if snapshot is not None:
            offset, found = Offset(snapshot[0].end_offset), list(snapshot[1])
        while batches := self.replica.read(offset, self.replica.high_watermark):
            found += batches
            offset = batches[-1].end_offset
        return values_of(found)

    async def stop(self) -> None:
        await self.replica.close()
        await self._server.stop()


def add_routes(routes: dict[int, Route], replica: QuorumReplica, asked: Counter[str]) -> None:
    """Add the routes of a controller's listener that belong to the quorum."""

    async def handle(context: RequestContext, request: Any) -> Any:
        asked[type(request).__name__] += 1
        return await replica.handle(request, context.api_version)

    async def versions(context: RequestContext, request: Any) -> ApiVersionsResponse:  # noqa: RUF029
        if not (request.client_software_name and request.client_software_version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        return ApiVersionsResponse(
            api_keys=offered_versions(routes),
            supported_features=[
                SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            ]
            if context.api_version >= 4
            else [],
        )

    for key in QUORUM_APIS:
        first, last = API_BY_KEY[key].request.versions
        routes[key] = Route(range(first, last + 1), handle)
    first, last = API_BY_KEY[ApiKey.API_VERSIONS].request.versions
    routes[ApiKey.API_VERSIONS] = Route(range(first, last + 1), versions)


def first_voters(*voters: Voter, kraft_version: int = 0) -> FirstVoters:
    return FirstVoters(VoterSet(voters), kraft_version)
