"""Fetch v0-v18: read batches, waiting for them if there are too few.

The response is sent as soon as min_bytes can be read, a partition has an error, a partition must
continue in its next segment, or max_wait_ms has passed. A topic that does not exist does not end
the wait for the others. Batches are referenced, not read: the kernel sends them from the page
cache. The first batch of the first non-empty partition is sent whole, regardless of its size, so
that every consumer makes progress; in a session (`fetch_sessions.py`) that partition comes last
the next time.

A follower reads up to the log end, and its fetch offset is its progress. It waits for appends,
while consumers wait for commits. Since version 11 consumers may read from followers, and are
redirected to a follower in their rack (`preferred_replicas.py`). The responses of versions 0 to 3
contain message sets, converted on a thread. Fetches of very many partitions run in time slices, so
that other requests run in between (`fetch_loop.py`).
"""

from collections.abc import Collection, Coroutine, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ottla.broker.controller.metadata_log_server import MetadataFetch
from ottla.broker.data.fetch_loop import counted_bytes, grouped_in_slices, read_all
from ottla.broker.data.fetch_reader import BATCHES_SINCE, WHOLE_SINCE, FetchReader
from ottla.broker.data.fetch_response import fail
from ottla.broker.data.fetch_sessions import (
    FetchedPartition,
    Fetching,
    FetchSessions,
    QuietMark,
    Read,
)
from ottla.broker.data.message_format_conversion import CONVERTED_BYTES_MAX, MessageFormatConversion
from ottla.broker.data.preferred_replicas import PreferredReplicas
from ottla.broker.describing.metadata_view import CurrentLeaders
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.replication.replication_quotas import LeaderThrottle
from ottla.broker.requests.request_context import RequestContext
from ottla.broker.requests.request_metrics import Meters
from ottla.concurrency.notifier import Notifier, Subscription
from ottla.concurrency.timer_queue import shared_deadline
from ottla.concurrency.yield_budget import TimeSlices
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, LeaderEpoch, Offset, TopicPartition
from ottla.replication.in_sync import Follower, FollowerKey, committed_key, log_end_key
from ottla.replication.partition import NO_REPLICA, Fetched
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.fetch import (
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

VERSIONS = range(19)
LARGE_FETCH_PARTITIONS: Final = 2_000
LARGE_FETCH_WAIT_MS_MAX: Final = 500
"""The maximum wait of a fetch with more partitions, because it holds memory for large requests.
It is the default wait of clients and followers."""
_TIMESTAMPS_SINCE = 2
_STORAGE_ERROR_SINCE = 6
_TOPIC_IDS_SINCE = 13
_LEADERS_SINCE = 16
_NOT_THERE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_WRONG_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


@dataclass(frozen=True, slots=True)
class FetchHandler:
    """Answers Fetch."""

    partitions: HostedPartitions
    notifier: Notifier
    sessions: FetchSessions
    leaders: CurrentLeaders
    old_formats: MessageFormatConversion
    bytes_max: int
    meters: Meters
    preferred: PreferredReplicas
    throttle: LeaderThrottle
    slices: TimeSlices
    metadata: MetadataFetch | None = None
    """Handles fetches of the metadata log by brokers, in a cluster."""

    async def handle(self, context: RequestContext, request: FetchRequest) -> FetchResponse:
        """Read, and wait for more as long as the request allows."""
        if self.metadata is not None and self.metadata.is_meant(request):
            return await self.metadata.handle(request, context.received_ms)
        version = context.api_version
        reader = FetchReader.of(request, version, context.received_ms, self.bytes_max)
        try:
            fetching = self.sessions.begin(
                request,
                by_id=version >= _TOPIC_IDS_SINCE,
                is_privileged=reader.follower is not None
                and self.leaders.is_broker(reader.follower.broker_id),
                now_ms=context.received_ms,
            )
            if reader.follower is not None:  # an earlier fetch of its session ends
                self.notifier.notify(log_end_key(reader.follower.broker_id))
            wait_ms = request.max_wait_ms
            if len(fetching.partitions) > LARGE_FETCH_PARTITIONS:
                wait_ms = min(wait_ms, LARGE_FETCH_WAIT_MS_MAX)
            deadline_ms = shared_deadline(context.received_ms, wait_ms)
            reads = await self._read_enough(fetching, reader, deadline_ms)
            answer = fetching.conclude(reads)
        except ApiError as error:
            self.meters.errors[ApiKey.FETCH, error.code] += 1
            return FetchResponse(error_code=error.code)
        failures = self._count(answer.reads, is_consumer=reader.follower is None)
        topics = await grouped_in_slices(answer.reads, self.slices)
        response = FetchResponse(session_id=answer.session_id, responses=topics)
        if version >= _LEADERS_SINCE:
            if failures:
                self._name_leaders(answer.reads, response, context.listener)
        elif version < _STORAGE_ERROR_SINCE:
            await self._for_old_clients(answer.reads, response, version)
        return response

    def _count(self, reads: list[Read], *, is_consumer: bool) -> int:
        """Count the sent bytes, for metrics and throttles; return how many partitions failed."""
        failures = 0
        for partition, found in reads:
            if isinstance(found, ApiError):
                self.meters.errors[ApiKey.FETCH, found.code] += 1
                failures += 1
            elif is_consumer:
                found.traffic.reads += 1
                found.traffic.bytes_out += found.records.size_bytes
            elif self.throttle.is_on and partition.name is not None:
                self.throttle.count_sent(
                    self.partitions.find(partition.name), found.records.size_bytes
                )
        return failures

    async def _read_enough(
        self, fetching: Fetching, reader: FetchReader, deadline_ms: int
    ) -> list[Read]:
        if reader.follower is None:
            return await self._read_until(fetching, reader, deadline_ms, None)
        # A follower listens before it reads: it may be suspended while it does.
        with self.notifier.listening(self._notifier_of(reader.follower)) as listener:
            return await self._read_until(fetching, reader, deadline_ms, listener)

    async def _read_until(
        self,
        fetching: Fetching,
        reader: FetchReader,
        deadline_ms: int,
        listener: Subscription | None,
    ) -> list[Read]:
        reads, size_bytes = await self._read_all(fetching.partitions, reader)
        if size_bytes >= reader.bytes_min:
            return reads
        if listener is not None:
            reader = reader._replace(asked_ms=None)
        missing = sum(isinstance(one, ApiError) and one.code in _NOT_THERE for _, one in reads)
        is_hopeless = missing == len(fetching.partitions)
        while not (is_hopeless or size_bytes >= reader.bytes_min or self._is_final(reads, missing)):
            if listener is None:
                is_worth_it = await self._await_more(reads, reader, deadline_ms)
            else:
                is_worth_it = not self._has_news(reads) and await listener.wait(deadline_ms)
                listener.take()
            if not is_worth_it or fetching.is_overtaken:
                break
            reads, size_bytes = await self._read_all(fetching.partitions, reader)
        return reads

    async def _await_more(self, reads: list[Read], reader: FetchReader, deadline_ms: int) -> bool:
        """Wait until the partitions are worth another read for a consumer; False if none changed.

        Returns when there may be enough bytes, or at the deadline. A notification costs a read of
        the notified partition only, independent of the number of partitions.
        """
        sizes_bytes = [counted_bytes(found) for _, found in reads]
        places: dict[Hashable, list[int]] = {}
        for place, (partition, _) in enumerate(reads):
            if partition.name is not None:
                places.setdefault(partition.name, []).append(place)
        is_notified = False
        with self.notifier.listening(tuple(places)) as listener:
            while await listener.wait(deadline_ms):
                is_notified = True
                again: list[Read] = []
                bytes_before = counted = 0
                for place in sorted(place for name in listener.take() for place in places[name]):
                    bytes_before += sum(sizes_bytes[counted:place])
                    counted = place
                    read = self._try_to_read(reader, reads[place][0], bytes_before)
                    sizes_bytes[place] = counted_bytes(read[1])
                    again.append(read)
                if sum(sizes_bytes) >= reader.bytes_min or self._is_final(again, 0):
                    break
        return is_notified

    def _is_final(self, reads: list[Read], missing: int) -> bool:
        """Return whether a reader should get its response without waiting for more.

        A partition has a new error, or the reader should fetch from another replica.
        """
        failures = 0
        for partition, found in reads:
            if isinstance(found, ApiError):
                failures += 1
            elif (
                found.diverging is not None
                or found.preferred_replica != NO_REPLICA
                or (found.records.size_bytes and self._is_behind(partition))
            ):
                return True
        return failures > missing

    def _has_news(self, reads: list[Read]) -> bool:
        """Return whether a follower needs a response at once.

        The log start has changed; or, if it serves consumers, the high watermark has.
        """
        is_rack_aware = self.preferred.is_rack_aware
        return any(
            one.begins_later(found) or (is_rack_aware and one.is_new(found)) for one, found in reads
        )

    def _notifier_of(self, follower: Follower) -> tuple[FollowerKey, ...]:
        """Return the keys that a follower waits for: one or two, for any number of partitions."""
        broker_id = follower.broker_id
        if self.preferred.is_rack_aware:
            return log_end_key(broker_id), committed_key(broker_id)
        return (log_end_key(broker_id),)

    def _is_behind(self, partition: FetchedPartition) -> bool:
        assert partition.name is not None, "it has been read from"
        kept = self.partitions.find(partition.name)
        return kept is None or kept.is_behind(Offset(partition.wanted.fetch_offset))

    def _read_all(
        self, wanted: Collection[FetchedPartition], reader: FetchReader
    ) -> Coroutine[Any, Any, tuple[list[Read], int]]:
        if reader.follower is None:
            read = partial(self._try_to_read, reader)
            return read_all(wanted, read, reader.bytes_min, self.slices, self.notifier)
        changed = partial(self._read_unless_quiet, reader.follower.broker_id, reader)
        return read_all(wanted, changed, reader.bytes_min, self.slices, None)

    def _read_unless_quiet(
        self, broker_id: BrokerId, reader: FetchReader, fetched: FetchedPartition, bytes_before: int
    ) -> Read | None:
        if self._is_quiet(fetched, broker_id):
            return None
        return self._try_to_read(reader, fetched, bytes_before)

    def _try_to_read(
        self, reader: FetchReader, fetched: FetchedPartition, bytes_before: int
    ) -> Read:
        try:
            bytes_left = max(reader.bytes_max - bytes_before, 0)
            return fetched, self._read(fetched, bytes_left, bytes_before, reader)
        except ApiError as error:
            return fetched, error.with_traceback(None)  # else it keeps frames alive

    def _is_quiet(self, fetched: FetchedPartition, broker_id: BrokerId) -> bool:
        """Return whether an in-sync follower would get the same empty result as the last time.

        So a write to one partition does not cost a read of all the others. Results from earlier in
        the same request were not sent yet, and do not count.
        """
        mark = fetched.quiet_mark
        if mark is None or mark.wanted is not fetched.wanted:
            return False
        partition = mark.partition
        in_sync = partition.in_sync  # None if the replica was removed
        return (
            partition.follower_news_count == mark.follower_news_count
            and mark.high_watermark == fetched.high_watermark
            and partition.log.log_start_offset == mark.log_start_offset
            and in_sync is not None
            and broker_id in in_sync.isr
        )

    def _read(
        self, fetched: FetchedPartition, bytes_left: int, bytes_before: int, reader: FetchReader
    ) -> Fetched:
        wanted = fetched.wanted
        name = fetched.name or self._resolved(fetched)
        partition = self.partitions.get(name)
        if not fetched.topic and partition.topic_id != fetched.topic_id:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, str(name))
        if reader.follower is not None:
            is_held_back = self.throttle.is_held_back(partition, reader.follower.broker_id)
            found = partition.read_as_follower(
                reader.follower,
                Offset(wanted.fetch_offset),
                0 if is_held_back else min(wanted.partition_max_bytes, bytes_left),
                leader_epoch=LeaderEpoch(wanted.current_leader_epoch),
                last_fetched_epoch=LeaderEpoch(wanted.last_fetched_epoch),
                log_start_offset=Offset(wanted.log_start_offset),
                whole_batch=bytes_before == 0 and not is_held_back,
                asked_ms=reader.asked_ms,
            )
            is_counted = reader.asked_ms is not None
            is_at_end = wanted.fetch_offset == partition.log.end_offset
            # A read that does not count as a fetch must not make the next fetches quiet: the
            # leader would never learn that this follower has all records.
            if is_counted and is_at_end and found.diverging is None:
                fetched.quiet_mark = QuietMark.of(partition, found, wanted)
            return found
        if reader.rack and (other := self.preferred.find(partition, reader.rack, wanted)):
            return other
        return partition.read(
            Offset(wanted.fetch_offset),
            min(wanted.partition_max_bytes, bytes_left),
            leader_epoch=LeaderEpoch(wanted.current_leader_epoch),
            last_fetched_epoch=LeaderEpoch(wanted.last_fetched_epoch),
            is_committed_only=reader.is_committed_only,
            whole_batch=bytes_before == 0 or (reader.is_cut_later and bytes_left > 0),
            is_leader_needed=reader.is_leader_needed,
        )

    def _resolved(self, fetched: FetchedPartition) -> TopicPartition:
        """Find the name of a topic that is named by id. A session keeps it."""
        topic = self.partitions.topic_name(fetched.topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        fetched.name = TopicPartition(topic, fetched.wanted.partition)
        return fetched.name

    def _name_leaders(self, reads: list[Read], response: FetchResponse, listener: str) -> None:
        """Add the leaders for clients that sent the request to the wrong broker (KIP-951)."""
        endpoints: dict[int, NodeEndpoint] = {}
        answers = (answer for topic in response.responses for answer in topic.partitions)
        for (partition, _), answer in zip(reads, answers, strict=True):
            if answer.error_code in _WRONG_LEADER and partition.name is not None:
                leader = self.leaders.find(partition.name, listener)
                answer.current_leader = LeaderIdAndEpoch(
                    leader_id=leader.leader_id, leader_epoch=leader.leader_epoch
                )
                if (end := leader.endpoint) is not None:
                    endpoints[leader.leader_id] = NodeEndpoint(
                        node_id=leader.leader_id, host=end.host, port=end.port, rack=leader.rack
                    )
        response.node_endpoints = list(endpoints.values())

    async def _for_old_clients(
        self, reads: list[Read], response: FetchResponse, version: int
    ) -> None:
        """Answer in words that clients of these versions know."""
        answers = (answer for topic in response.responses for answer in topic.partitions)
        bytes_left = CONVERTED_BYTES_MAX
        for (partition, found), answer in zip(reads, answers, strict=True):
            if version < BATCHES_SINCE and isinstance(found, Fetched):
                await self._convert(partition, found, answer, version, bytes_left)
                bytes_left -= len(answer.records or b"")
            if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def _convert(
        self,
        partition: FetchedPartition,
        found: Fetched,
        answer: PartitionData,
        version: int,
        bytes_left: int,
    ) -> None:
        try:
            messages = await self.old_formats.message_set(
                found.records,
                magic=0 if version < _TIMESTAMPS_SINCE else 1,
                first_offset=Offset(partition.wanted.fetch_offset),
                bytes_max=bytes_left,
            )
        except ApiError as error:
            fail(answer, error)
            return
        # Where the limit was for messages, they break off there: so a client sees that it is small.
        limit = partition.wanted.partition_max_bytes if version < WHOLE_SINCE else len(messages)
        answer.records = messages[: max(limit, 0)]
