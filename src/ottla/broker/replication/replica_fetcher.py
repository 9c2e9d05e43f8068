"""Follows the leaders on one other broker, with one fetch for all their partitions at a time.

The fetches form one incremental session (KIP-227), so that a request names only changed partitions,
and an idle partition costs nothing here. Batches are appended unchanged. If the leader reports a
divergence, the log is truncated and fetched again (KIP-279); if the leader no longer has the next
offset, the log restarts at the leader's log start. A partition with an error leaves the session,
and returns after `replica.fetch.backoff.ms`.

A result is used only if leader epoch and log end are unchanged since the request.

A partition that is added while a fetch waits at the leader need not wait for its response: the next
fetch of the session is sent ahead. The leader then ends the earlier fetch with
INVALID_FETCH_SESSION_EPOCH. So the first record of a new topic, and the first after an election, is
not delayed by up to `replica.fetch.wait.max.ms`.
"""

import asyncio
import logging
from typing import Final

from ottla.broker.peers.broker_clients import connect_to_broker
from ottla.broker.replication.fetcher_world import FetcherWorld
from ottla.broker.replication.replica_fetch_state import FetchPosition, key_of
from ottla.concurrency.yield_budget import YieldBudget
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, LeaderEpoch, Offset, TopicPartition
from ottla.model.isolation_level import EARLIEST
from ottla.replication.follower import beginning_before
from ottla.replication.partition import Partition
from ottla.rpc.connection import Connection
from ottla.rpc.fetch_session import SESSION_LOST, FetchSession, PartitionKey
from ottla.runtime.problem_log import ProblemLog
from ottla.storage.log.leader_epochs import EpochEnd
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LIST_OFFSETS_VERSION: Final = 9
FETCH_VERSION: Final = 17
_LOST: Final = "%s: an unclean election has lost committed records"
_log = logging.getLogger(__name__)


class ReplicaFetcher:
    """The loop that follows one broker, for as long as it has partitions to follow there."""

    def __init__(self, leader_id: BrokerId, world: FetcherWorld) -> None:
        self.leader_id = leader_id
        self._world = world
        self._positions: dict[PartitionKey, FetchPosition] = {}
        self._session = FetchSession()
        """All partitions but the refused ones."""
        self._refused: dict[PartitionKey, None] = {}
        self._connection: Connection | None = None
        self._key = ("fetcher", leader_id)
        self._problem = ProblemLog(_log)
        self._is_waiting = False
        """Whether a fetch is on its way."""
        self._new: dict[PartitionKey, None] = {}
        """Partitions added since, which the session has never contained."""
        self._ahead: asyncio.Task[FetchResponse] | None = None
        """The next fetch, sent while another is in flight."""

    def __len__(self) -> int:
        return len(self._positions)

    def add(self, partition: Partition) -> None:
        """Follow a partition from now on, or go on in another leader epoch."""
        key = key_of(partition)
        position = self._positions.get(key)
        if position is None and self._is_waiting and not self._session.is_known(key):
            if not self._new:  # one request for all that are added in this round of the loop
                asyncio.get_running_loop().call_soon(self._fetch_ahead)
            self._new[key] = None
        if position is None or position.partition is not partition:
            position = self._positions[key] = FetchPosition(partition)
        position.retry_ms = None
        self._refused.pop(key, None)
        self._session.put(key)
        self._world.notifier.notify(self._key)

    def remove(self, partition: Partition) -> None:
        """Stop following a partition; a response in flight is ignored."""
        key = key_of(partition)
        self._positions.pop(key, None)
        self._refused.pop(key, None)
        self._session.remove(key)
        self._world.notifier.notify(self._key)

    async def run(self) -> None:
        """Fetch until cancelled, or until the broker stops."""
        try:
            while not self._world.notifier.is_closed:
                self._readmit()
                self._hold_back()
                if len(self._refused) == len(self._positions):
                    await self._rest(self._ms_to_retry(self._world.settings.backoff_ms))
                else:
                    await self._fetch_or_rest()
        finally:
            self._disconnect()

    async def _fetch_or_rest(self) -> None:
        try:
            await self._fetch()
        except (OSError, ApiError) as error:
            self._problem.report(f"broker {self.leader_id} cannot be followed: {error}")
            self._disconnect()
            await self._rest(self._world.settings.backoff_ms)
        except Exception:  # noqa: BLE001 - else replication of these partitions would stop
            _log.exception("following broker %d failed", self.leader_id)
            self._disconnect()
            await self._rest(self._world.settings.backoff_ms)

    async def _rest(self, wait_ms: int) -> None:
        """Wait as long, or until there is something new to follow."""
        world = self._world
        await world.notifier.wait_any([self._key], world.clock.monotonic_ms() + wait_ms)

    def _ms_to_retry(self, wait_ms: int) -> int:
        """Return how long to wait: not past the next try of a partition that was refused."""
        retries_ms = [self._positions[key].retry_ms for key in self._refused]
        next_ms = min((one for one in retries_ms if one), default=None)  # 0: it is throttled
        if next_ms is None:
            return wait_ms
        return min(max(next_ms - self._world.clock.monotonic_ms(), 1), wait_ms)

    def _readmit(self) -> None:
        """Put partitions back into the session when their backoff is over."""
        now_ms = self._world.clock.monotonic_ms()
        for key in list(self._refused):
            position = self._positions[key]
            if position.retry_ms is None or position.retry_ms <= now_ms:
                del self._refused[key]
                position.retry_ms = None
                self._session.put(key)

    def _hold_back(self) -> None:
        """Leave those out of this round that have to wait, as enough was copied for now."""
        throttle = self._world.throttle
        if not throttle.is_on or not throttle.is_exceeded:
            return
        for key in self._session.changed:
            position = self._positions[key]
            if throttle.is_held_back(position.partition, is_caught_up=position.is_caught_up):
                position.retry_ms = 0
                self._leave_out(key, position)

    # -- one fetch ------------------------------------------------------------------------------

    async def _fetch(self) -> None:
        connection = await self._connect()
        response = await self._answer(connection)
        code = ErrorCode(response.error_code)
        if code is ErrorCode.INVALID_FETCH_SESSION_EPOCH and self._ahead is not None:
            self._session.skip()
            return
        if code in SESSION_LOST:
            self._restart_session()
            return
        if code is not ErrorCode.NONE:
            raise ApiError(code, f"broker {self.leader_id}")
        self._problem.is_over(f"broker {self.leader_id} is followed again")
        await self._take_all(response)
        self._session.accept(response.session_id)

    async def _answer(self, connection: Connection) -> FetchResponse:
        """Return the response to the fetch sent ahead, or else to a new fetch."""
        ahead, self._ahead = self._ahead, None
        self._is_waiting = True
        try:
            if ahead is not None:
                return await ahead
            return await self._ask(connection, self._session.request(self._entry))
        finally:
            self._is_waiting = False

    async def _ask(self, connection: Connection, request: FetchRequest) -> FetchResponse:
        world, settings = self._world, self._world.settings
        wait_ms = self._ms_to_retry(settings.wait_ms) if self._refused else settings.wait_ms
        request.replica_state = ReplicaState(
            replica_id=world.broker_id, replica_epoch=world.broker_epoch()
        )
        request.max_wait_ms = wait_ms
        request.min_bytes = settings.bytes_min
        request.max_bytes = settings.bytes_max
        return await connection.ask(
            request,
            FetchResponse,
            version_max=FETCH_VERSION,
            timeout_ms=settings.wait_ms + settings.timeout_ms,
        )

    def _entry(self, key: PartitionKey) -> FetchPartition:
        return self._positions[key].ask(self._world.settings.partition_bytes_max)

    def _fetch_ahead(self) -> None:
        """Send a fetch for new partitions while a response is pending, if there is a session.

        Only for these: a response must be compared with the request that it belongs to.
        """
        session, connection = self._session, self._connection
        new = [key for key in session.changed if key in self._new]
        self._new.clear()
        is_possible = self._is_waiting and self._ahead is None and session.is_open
        if new and is_possible and connection is not None and connection.is_open:
            request = session.request(self._entry, ahead=new)
            self._ahead = asyncio.get_running_loop().create_task(self._ask(connection, request))
            self._ahead.add_done_callback(_seen)

    async def _connect(self) -> Connection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        world = self._world
        endpoint = world.endpoint_of(self.leader_id)
        if endpoint is None:
            raise ConnectionError(f"the address of broker {self.leader_id} is unknown")
        self._restart_session()
        self._connection = await connect_to_broker(
            world.network,
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{world.broker_id}-fetcher",
            timeout_ms=world.settings.timeout_ms,
        )
        return self._connection

    def _disconnect(self) -> None:
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _restart_session(self) -> None:
        """Forget the session: the next fetch names everything."""
        self._session.reset()
        for position in self._positions.values():
            position.asked = None

    # -- the response ---------------------------------------------------------------------------

    async def _take_all(self, response: FetchResponse) -> None:
        appended: list[Partition] = []
        budget = YieldBudget(self._world.clock)
        for topic in response.responses:
            for answer in topic.partitions:
                # Looked up anew each time: the leader may have changed in the meantime.
                key = PartitionKey(topic.topic_id, answer.partition_index)
                position = self._positions.get(key)
                # The leader may answer a fetch sent ahead for a partition refused since.
                if position is None or key in self._refused:
                    continue
                if not position.is_answered():
                    self._session.put(key)
                elif await self._take(position, answer):
                    appended.append(position.partition)
                await budget.yield_if_spent()
        if appended:
            # Before the next fetch: its offset tells the leader that the records are stored.
            for partition in await self._world.flushing.flush_where_due(appended):
                self._refuse(partition, "its disk does not keep it")

    async def _take(self, position: FetchPosition, answer: PartitionData) -> bool:
        """Apply the response for one partition; return whether records were appended."""
        partition = position.partition
        code = ErrorCode(answer.error_code)
        try:
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._begin_anew(position)
            elif code is not ErrorCode.NONE:
                self._refuse(partition, code.name)
            elif answer.diverging_epoch is not None:
                self._truncate(position, answer)
            else:
                return self._append(position, answer)
        except ApiError as error:
            # A full disk is logged once for its log dir, not for each partition and retry.
            level = logging.WARNING if partition.log.has_room else logging.DEBUG
            _log.log(
                level, "%s: cannot follow broker %d: %s", partition.name, self.leader_id, error
            )
            self._refuse(partition, error.code.name)
        return False

    def _append(self, position: FetchPosition, answer: PartitionData) -> bool:
        partition, throttle = position.partition, self._world.throttle
        position.refusals = 0
        start_offset = partition.log.log_start_offset
        appended = None
        if answer.records:
            data = memoryview(answer.records)
            if throttle.is_throttled(partition):
                throttle.count(len(data))
            if (beginning := beginning_before(partition.log, data)) is not None:
                partition.restart_at(Offset(beginning), self._world.clock.now_ms())
            appended = partition.append_as_follower(data, self._world.clock.now_ms())
        partition.follow_offsets(Offset(answer.high_watermark), Offset(answer.log_start_offset))
        position.is_caught_up = answer.high_watermark <= partition.log.end_offset
        if appended is not None or partition.log.log_start_offset != start_offset:
            self._session.put(position.key)
        return appended is not None

    def _truncate(self, position: FetchPosition, answer: PartitionData) -> None:
        partition, found = position.partition, answer.diverging_epoch
        assert found is not None
        end_offset = partition.log.end_offset
        if partition.truncate(EpochEnd(LeaderEpoch(found.epoch), Offset(found.end_offset))):
            _log.error(_LOST, partition.name)
        _log.info("%s: cut from %d to %d", partition.name, end_offset, partition.log.end_offset)
        self._session.put(position.key)

    async def _begin_anew(self, position: FetchPosition) -> None:
        """Restart the log at the leader's log start, if the next offset is gone there.

        The same if the leader's log ends before ours begins, and ours is empty.
        """
        partition = position.partition
        assert self._connection is not None
        world = self._world
        timeout_ms = world.settings.timeout_ms
        start_offset = await _leader_start_offset(
            self._connection, world.broker_id, partition.name, partition.leader_epoch, timeout_ms
        )
        if self._positions.get(position.key) is not position:
            return  # it is not followed here any more
        if not position.is_answered():
            self._session.put(position.key)
        elif start_offset > partition.log.end_offset or position.has_nothing:
            _log.warning(
                "%s: starts over at offset %d, the log start of its leader",
                partition.name,
                start_offset,
            )
            if partition.restart_at(start_offset, self._world.clock.now_ms()):
                _log.error(_LOST, partition.name)
            self._session.put(position.key)
        else:
            self._refuse(partition, ErrorCode.OFFSET_OUT_OF_RANGE.name)

    def _refuse(self, partition: Partition, why: str) -> None:
        """Leave a partition alone for a while, and have the leader leave it alone, too."""
        key = key_of(partition)
        position = self._positions.get(key)
        if position is None:
            return
        _log.debug("%s: broker %d refuses: %s", partition.name, self.leader_id, why)
        world = self._world
        position.refuse(world.clock.monotonic_ms(), world.settings.backoff_ms)
        self._leave_out(key, position)

    def _leave_out(self, key: PartitionKey, position: FetchPosition) -> None:
        position.asked = None
        self._refused[key] = None
        self._session.remove(key)


def _seen(done: "asyncio.Task[FetchResponse]") -> None:
    """Record a failure that the fetch before it has had as well."""
    if not done.cancelled():
        done.exception()


async def _leader_start_offset(
    connection: Connection,
    broker_id: BrokerId,
    name: TopicPartition,
    leader_epoch: LeaderEpoch,
    timeout_ms: int,
) -> Offset:
    """Return the first offset of the leader's log; ApiError if the leader does not say."""
    wanted = ListOffsetsPartition(
        partition_index=name.partition, current_leader_epoch=leader_epoch, timestamp=EARLIEST
    )
    request = ListOffsetsRequest(
        replica_id=broker_id, topics=[ListOffsetsTopic(name=name.topic, partitions=[wanted])]
    )
    response = await connection.ask(
        request, ListOffsetsResponse, version_max=LIST_OFFSETS_VERSION, timeout_ms=timeout_ms
    )
    found = [one for topic in response.topics for one in topic.partitions]
    if len(found) != 1 or found[0].error_code:
        code = found[0].error_code if found else ErrorCode.UNKNOWN_SERVER_ERROR
        raise ApiError(ErrorCode(code), f"{name}: where does its leader begin?")
    return Offset(found[0].offset)
