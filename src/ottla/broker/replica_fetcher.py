"""Follows the leaders on one other broker: all their partitions in one fetch, again and again.

The fetches are of one incremental session (KIP-227), so that a request names only what has moved,
and an idle partition costs nothing here. What the leader sends is appended as it is. Where it says
that the logs differ, the log is cut back and it is asked again (KIP-279); where what comes next
is not there any more, the log begins anew where the leader's does. A partition that is refused
leaves the session, and comes back after `replica.fetch.backoff.ms`.

An answer counts only if leader epoch and end of the log are those that it was asked for.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.broker.bells import Bells
from ottla.broker.fetch_position import FetchPosition, PartitionKey, by_topic, forgotten
from ottla.broker.flushing import Flushing
from ottla.broker.peer_connection import PeerConnection
from ottla.broker.replication_throttle import FollowerThrottle
from ottla.broker.turns import Turns
from ottla.environment.clock import Clock
from ottla.environment.network import Network
from ottla.metadata.image import Endpoint
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.reading import EARLIEST
from ottla.replication.follower import beginning_before
from ottla.replication.partition import Partition
from ottla.storage.leader_epochs import EpochEnd
from ottla.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

FETCH_VERSION: Final = 17
LIST_OFFSETS_VERSION: Final = 9
_SESSION_LOST: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_INT32_MAX: Final = 2**31 - 1
_LOST: Final = "%s: what was committed is lost, by an unclean election"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """How followers fetch."""

    wait_ms: int
    bytes_min: int
    partition_bytes_max: int
    bytes_max: int
    backoff_ms: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class FetcherWorld:
    """What fetchers are made from."""

    broker_id: int
    broker_epoch: Callable[[], int]
    endpoint_of: Callable[[int], Endpoint | None]
    """Where another broker listens for brokers, if that is known."""
    network: Network
    clock: Clock
    bells: Bells
    flushing: Flushing
    throttle: FollowerThrottle
    settings: FetcherSettings


class ReplicaFetcher:
    """The loop that follows one broker, for as long as it has partitions to follow there."""

    def __init__(self, leader_id: int, world: FetcherWorld) -> None:
        self.leader_id = leader_id
        self._world = world
        self._positions: dict[PartitionKey, FetchPosition] = {}
        self._moved: dict[PartitionKey, None] = {}
        """Those of which the leader does not know yet where they are."""
        self._refused: dict[PartitionKey, None] = {}
        self._gone: dict[PartitionKey, None] = {}
        """Those that are in the session, and should not be."""
        self._connection: PeerConnection | None = None
        self._session_id = 0
        self._session_epoch = 0
        self._bell = ("fetcher", leader_id)

    def __len__(self) -> int:
        return len(self._positions)

    def add(self, partition: Partition) -> None:
        """Follow a partition from now on, or go on in another leader epoch."""
        key = partition.topic_id, partition.name.partition
        position = self._positions.get(key)
        if position is None or position.partition is not partition:
            position = self._positions[key] = FetchPosition(partition)
        position.retry_ms = None
        self._refused.pop(key, None)
        self._gone.pop(key, None)
        self._moved[key] = None
        self._world.bells.ring(self._bell)

    def remove(self, partition: Partition) -> None:
        """Follow a partition no more; an answer that is on its way is not looked at."""
        key = partition.topic_id, partition.name.partition
        position = self._positions.pop(key, None)
        if position is not None and position.asked is not None:
            self._gone[key] = None
        self._moved.pop(key, None)
        self._refused.pop(key, None)
        self._world.bells.ring(self._bell)

    async def run(self) -> None:
        """Fetch until cancelled, or until the broker stops."""
        try:
            while not self._world.bells.is_closed:
                self._readmit()
                self._hold_back()
                if len(self._refused) == len(self._positions):
                    await self._rest()
                else:
                    await self._fetch_or_rest()
        finally:
            if self._connection is not None:
                self._connection.close()

    async def _fetch_or_rest(self) -> None:
        try:
            await self._fetch()
        except (OSError, ApiError) as error:
            _log.info("broker %d cannot be followed: %s", self.leader_id, error)
            self._disconnect()
            await self._rest()
        except Exception:  # noqa: BLE001 - nobody else would follow these partitions
            _log.exception("following broker %d failed", self.leader_id)
            self._disconnect()
            await self._rest()

    async def _rest(self) -> None:
        """Wait for the back-off to be over, or for something new to follow."""
        world = self._world
        deadline_ms = world.clock.monotonic_ms() + world.settings.backoff_ms
        await world.bells.wait_any([self._bell], deadline_ms)

    def _readmit(self) -> None:
        """Try those again whose time has come."""
        now_ms = self._world.clock.monotonic_ms()
        for key in list(self._refused):
            position = self._positions[key]
            if position.retry_ms is None or position.retry_ms <= now_ms:
                del self._refused[key]
                # Who asks for it and forgets it at once is not answered about it any more.
                self._gone.pop(key, None)
                position.retry_ms = None
                self._moved[key] = None

    def _hold_back(self) -> None:
        """Leave those out of this round that have to wait, as enough was copied for now."""
        throttle = self._world.throttle
        if not throttle.is_on or not throttle.is_exceeded:
            return
        for key in list(self._moved):
            position = self._positions[key]
            if throttle.is_held_back(position.partition, is_caught_up=position.is_caught_up):
                position.retry_ms = 0
                self._leave_out(key, position)

    # -- one fetch ------------------------------------------------------------------------------

    async def _fetch(self) -> None:
        connection = await self._connect()
        request = self._request()
        settings = self._world.settings
        timeout_ms = settings.wait_ms + settings.timeout_ms
        response = await connection.ask(
            request, FETCH_VERSION, FetchResponse, timeout_ms=timeout_ms
        )
        code = ErrorCode(response.error_code)
        if code in _SESSION_LOST:
            self._restart_session()
            return
        if code is not ErrorCode.NONE:
            raise ApiError(code, f"broker {self.leader_id}")
        await self._take_all(response)
        self._go_on_with(response.session_id)

    async def _connect(self) -> PeerConnection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        world = self._world
        endpoint = world.endpoint_of(self.leader_id)
        if endpoint is None:
            raise ConnectionError(f"nobody knows where broker {self.leader_id} is")
        self._restart_session()
        self._connection = await PeerConnection.open(
            world.network,
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{world.broker_id}-fetcher",
            timeout_ms=world.settings.timeout_ms,
        )
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _restart_session(self) -> None:
        """Forget the session: the next fetch names everything."""
        self._session_id = self._session_epoch = 0
        self._gone.clear()
        for key, position in self._positions.items():
            position.asked = None
            if key not in self._refused:
                self._moved[key] = None

    def _go_on_with(self, session_id: int) -> None:
        if session_id == 0:  # no room: every fetch names everything
            self._restart_session()
        else:
            self._session_id = session_id
            epoch = self._session_epoch
            self._session_epoch = 1 if epoch == _INT32_MAX else epoch + 1

    def _request(self) -> FetchRequest:
        world, settings = self._world, self._world.settings
        positions = [self._positions[key] for key in self._moved]
        wanted = [
            (position.partition.topic_id, position.ask(settings.partition_bytes_max))
            for position in positions
        ]
        gone = list(self._gone)
        self._moved.clear()
        self._gone.clear()
        return FetchRequest(
            replica_state=ReplicaState(
                replica_id=world.broker_id, replica_epoch=world.broker_epoch()
            ),
            max_wait_ms=settings.wait_ms,
            min_bytes=settings.bytes_min,
            max_bytes=settings.bytes_max,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=by_topic(wanted),
            forgotten_topics_data=forgotten(gone),
        )

    # -- its answer -----------------------------------------------------------------------------

    async def _take_all(self, response: FetchResponse) -> None:
        appended: list[Partition] = []
        turns = Turns(self._world.clock)
        for topic in response.responses:
            for answer in topic.partitions:
                # Looked up anew each time: who leads may have changed in the meantime.
                position = self._positions.get((topic.topic_id, answer.partition_index))
                if position is None:
                    continue
                if not position.is_answered():
                    self._moved[position.key] = None
                elif await self._take(position, answer):
                    appended.append(position.partition)
                await turns.pause()
        if appended:
            for partition in await self._world.flushing.flush_where_due(appended):
                self._refuse(partition, "its disk does not keep it")

    async def _take(self, position: FetchPosition, answer: PartitionData) -> bool:
        """Do what the leader says of one partition; tell whether something was appended."""
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
            # A full disk is logged once for its folder, not for each partition and retry.
            level = logging.WARNING if partition.log.has_room else logging.DEBUG
            _log.log(
                level, "%s: cannot follow broker %d: %s", partition.name, self.leader_id, error
            )
            self._refuse(partition, error.code.name)
        return False

    def _append(self, position: FetchPosition, answer: PartitionData) -> bool:
        partition, throttle = position.partition, self._world.throttle
        start_offset = partition.log.log_start_offset
        appended = None
        if answer.records:
            data = memoryview(answer.records)
            if throttle.is_throttled(partition):
                throttle.count(len(data))
            if (beginning := beginning_before(partition.log, data)) is not None:
                partition.restart_at(beginning, self._world.clock.now_ms())
            appended = partition.append_as_follower(data, self._world.clock.now_ms())
        partition.follow_offsets(answer.high_watermark, answer.log_start_offset)
        position.is_caught_up = answer.high_watermark <= partition.log.end_offset
        if appended is not None or partition.log.log_start_offset != start_offset:
            self._moved[position.key] = None
        return appended is not None

    def _truncate(self, position: FetchPosition, answer: PartitionData) -> None:
        partition, found = position.partition, answer.diverging_epoch
        assert found is not None
        end_offset = partition.log.end_offset
        if partition.truncate(EpochEnd(found.epoch, found.end_offset)):
            _log.error(_LOST, partition.name)
        _log.info("%s: cut from %d to %d", partition.name, end_offset, partition.log.end_offset)
        self._moved[position.key] = None

    async def _begin_anew(self, position: FetchPosition) -> None:
        """Go on where the leader's log begins, if what comes next here is gone there.

        So it does where the leader's log ends before ours begins, in which there is nothing.
        """
        partition = position.partition
        start_offset = await self._start_offset(partition.name, partition.leader_epoch)
        if self._positions.get(position.key) is not position:
            return  # it is not followed here any more
        if not position.is_answered():
            self._moved[position.key] = None
        elif start_offset > partition.log.end_offset or position.has_nothing:
            _log.warning("%s: begins anew at %d, as its leader does", partition.name, start_offset)
            if partition.restart_at(start_offset, self._world.clock.now_ms()):
                _log.error(_LOST, partition.name)
            self._moved[position.key] = None
        else:
            self._refuse(partition, ErrorCode.OFFSET_OUT_OF_RANGE.name)

    async def _start_offset(self, name: TopicPartition, leader_epoch: int) -> int:
        assert self._connection is not None
        wanted = ListOffsetsPartition(
            partition_index=name.partition, current_leader_epoch=leader_epoch, timestamp=EARLIEST
        )
        request = ListOffsetsRequest(
            replica_id=self._world.broker_id,
            topics=[ListOffsetsTopic(name=name.topic, partitions=[wanted])],
        )
        response = await self._connection.ask(
            request,
            LIST_OFFSETS_VERSION,
            ListOffsetsResponse,
            timeout_ms=self._world.settings.timeout_ms,
        )
        found = [one for topic in response.topics for one in topic.partitions]
        if len(found) != 1 or found[0].error_code:
            code = found[0].error_code if found else ErrorCode.UNKNOWN_SERVER_ERROR
            raise ApiError(ErrorCode(code), f"{name}: where does its leader begin?")
        return found[0].offset

    def _refuse(self, partition: Partition, why: str) -> None:
        """Leave a partition alone for a while, and have the leader leave it alone, too."""
        key = partition.topic_id, partition.name.partition
        position = self._positions.get(key)
        if position is None:
            return
        _log.debug("%s: broker %d refuses: %s", partition.name, self.leader_id, why)
        world = self._world
        position.retry_ms = world.clock.monotonic_ms() + world.settings.backoff_ms
        self._leave_out(key, position)

    def _leave_out(self, key: PartitionKey, position: FetchPosition) -> None:
        position.asked = None
        self._moved.pop(key, None)
        self._refused[key] = None
        self._gone[key] = None
