"""Fetch sessions (KIP-227): the broker remembers the partitions that a client fetches.

A full fetch (epoch 0) names every partition, and may begin a session. Later fetches name its id
and epoch, and only the changes: added and forgotten partitions, and other offsets. Their
responses hold only changed partitions, too. Epoch -1 wants no session, and ends the named one.

When all slots are taken a new session gets one in three ways: a session that was idle for more
than two minutes goes, the longest idle first; followers take one from a consumer; and a larger
session takes one from a smaller session that is older than two minutes. Otherwise there is no
session, and the client goes on with full fetches. A client that has lost its session gets an error,
and begins another session.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple, Protocol, Self

from ottla.environment.randomness import Randomness
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset, TopicPartition
from ottla.replication.partition import NO_REPLICA, Fetched, Partition
from ottla.wire.messages.fetch import FetchPartition, FetchRequest

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_FULL_EPOCHS: Final = frozenset({INITIAL_EPOCH, FINAL_EPOCH})
EVICTION_MS: Final = 120_000
"""A session that is idle for longer, or at least this old, has to make room for others."""
PARTITIONS_MAX: Final = 200_000
"""In all sessions together: their state takes up to a hundred megabytes."""

_INT32_MAX = 2**31 - 1
_UNTOLD = -1

PartitionKey = tuple[str | bytes, int]
"""A topic, by name or by id, and the number of a partition."""


class QuietMark(NamedTuple):
    """The state of a partition when a follower had caught up, by the fields that matter."""

    partition: Partition
    follower_news_count: int
    high_watermark: Offset
    log_start_offset: Offset
    wanted: FetchPartition

    @classmethod
    def of(cls, partition: Partition, found: Fetched, wanted: FetchPartition) -> Self:
        """Remember how it is now, when a follower has found this."""
        news_count = partition.follower_news_count
        return cls(partition, news_count, found.high_watermark, found.log_start_offset, wanted)


class FetchedPartition:
    """One partition to fetch and, in a session, the state in its last response."""

    __slots__ = (
        "high_watermark",
        "log_start_offset",
        "name",
        "quiet_mark",
        "topic",
        "topic_id",
        "wanted",
    )

    def __init__(self, topic: str, topic_id: bytes, wanted: FetchPartition, *, by_id: bool) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.wanted = wanted
        self.name = None if by_id else TopicPartition(topic, wanted.partition)
        """None for a topic that is named by id, until it is resolved."""
        self.high_watermark = _UNTOLD
        self.log_start_offset = _UNTOLD
        self.quiet_mark: QuietMark | None = None
        """The state when a follower last had caught up."""

    def is_new(self, found: Fetched | ApiError) -> bool:
        """Return whether the result differs from the last response, besides records."""
        return (
            isinstance(found, ApiError)
            or found.high_watermark != self.high_watermark
            or found.log_start_offset != self.log_start_offset
            or found.diverging is not None
            or found.preferred_replica != NO_REPLICA
        )

    def begins_later(self, found: Fetched | ApiError) -> bool:
        """Return whether records were deleted since the last reported log start."""
        return (
            not isinstance(found, ApiError)
            and found.log_start_offset > self.log_start_offset > _UNTOLD
        )

    def told(self, found: Fetched | ApiError) -> None:
        """Record the state of this response. After an error everything is new."""
        if isinstance(found, ApiError):
            self.high_watermark = _UNTOLD
        else:
            self.high_watermark = found.high_watermark
            self.log_start_offset = found.log_start_offset


Read = tuple[FetchedPartition, Fetched | ApiError]


class Answer(NamedTuple):
    """The session id for the client, and the partitions of its response."""

    session_id: int
    reads: list[Read]


class Fetching(Protocol):
    """One fetch, from its partitions to its response."""

    @property
    def partitions(self) -> Collection[FetchedPartition]:
        """The partitions to read, in this order."""
        ...

    @property
    def is_overtaken(self) -> bool:
        """Whether the client has sent the next request of the session already."""
        ...

    def conclude(self, reads: list[Read]) -> Answer:
        """Choose the results for the response; ApiError if a later fetch overtook it."""
        ...


class Eviction(NamedTuple):
    """The rank of a session for eviction: the smallest goes first."""

    is_privileged: bool
    size: int
    session_id: int
    is_old: bool


class FetchSession:
    """The partitions that one client fetches, and the epoch of its next request."""

    __slots__ = ("by_id", "created_ms", "epoch", "eviction", "id", "partitions", "used_ms")

    def __init__(
        self,
        partitions: dict[PartitionKey, FetchedPartition],
        eviction: Eviction,
        *,
        by_id: bool,
        now_ms: int,
    ) -> None:
        self.id = eviction.session_id
        self.by_id = by_id
        self.partitions = partitions
        self.epoch = INITIAL_EPOCH + 1
        self.created_ms = self.used_ms = now_ms
        self.eviction = eviction

    def update(self, request: FetchRequest) -> None:
        """Apply the changes of a request; new partitions come last."""
        for topic in request.topics:
            name, topic_id = topic.topic, topic.topic_id
            for wanted in topic.partitions:
                key = (topic_id if self.by_id else name, wanted.partition)
                known = self.partitions.get(key)
                if known is None:
                    partition = FetchedPartition(name, topic_id, wanted, by_id=self.by_id)
                    self.partitions[key] = partition
                else:
                    known.wanted = wanted
        for forgotten in request.forgotten_topics_data:
            unwanted = forgotten.topic_id if self.by_id else forgotten.topic
            for index in forgotten.partitions:
                self.partitions.pop((unwanted, index), None)

    def to_the_end(self, partition: FetchedPartition) -> None:
        """Move a partition to the end, so that the others come first the next time."""
        if len(self.partitions) > 1:
            topic = partition.topic_id if self.by_id else partition.topic
            key = (topic, partition.wanted.partition)
            self.partitions[key] = self.partitions.pop(key)


class FetchSessions:
    """All sessions of this broker."""

    def __init__(
        self, randomness: Randomness, slots_max: int, *, partitions_max: int = PARTITIONS_MAX
    ) -> None:
        self._randomness = randomness
        self._slots_max = slots_max
        self._partitions_max = partitions_max
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # idle longest first
        self._for_followers: list[Eviction] = []  # these lists are sorted by eviction order
        self._for_all: list[Eviction] = []
        self.partition_count = 0
        self.eviction_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, request: FetchRequest, *, by_id: bool, is_privileged: bool, now_ms: int
    ) -> Fetching:
        """Return the fetch of a request; ApiError for an unknown session or a wrong epoch."""
        epoch = request.session_epoch
        if epoch not in _FULL_EPOCHS:
            return self._go_on(request, by_id=by_id, now_ms=now_ms)
        if request.session_id != NO_SESSION:
            self.end(request.session_id)
        wanted = _wanted(request, by_id=by_id)
        if epoch == FINAL_EPOCH:
            return _Sessionless(wanted)
        return _Full(self, wanted, by_id=by_id, is_privileged=is_privileged, now_ms=now_ms)

    def end(self, session_id: int) -> None:
        """Forget a session, if there is one of this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._unlist(session.eviction)

    def _go_on(self, request: FetchRequest, *, by_id: bool, now_ms: int) -> Fetching:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, str(request.session_id))
        if session.epoch != request.session_epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, str(request.session_epoch))
        if session.by_id != by_id:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request)
        if not session.partitions:
            self.end(session.id)
            return _Sessionless({})
        self._touch(session, now_ms)
        if self.partition_count > self._partitions_max:
            self.end(session.id)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the session has grown too large")
        session.epoch = 1 if session.epoch == _INT32_MAX else session.epoch + 1
        return _Incremental(session)

    def create(
        self,
        partitions: dict[PartitionKey, FetchedPartition],
        *,
        by_id: bool,
        is_privileged: bool,
        now_ms: int,
    ) -> int:
        """Begin a session and return its id; NO_SESSION if there is no room for it."""
        size = len(partitions)
        if self.partition_count + size > self._partitions_max:
            return NO_SESSION
        if len(self._sessions) >= self._slots_max and not self._evict(
            Eviction(is_privileged, size, 0, is_old=False), now_ms
        ):
            return NO_SESSION
        session_id = self._new_id()
        eviction = Eviction(is_privileged, size, session_id, is_old=False)
        session = FetchSession(partitions, eviction, by_id=by_id, now_ms=now_ms)
        self._sessions[session_id] = session
        self._list(eviction)
        return session_id

    def _new_id(self) -> int:
        while True:
            session_id = 1 + self._randomness.below(_INT32_MAX)
            if session_id not in self._sessions:
                return session_id

    def _evict(self, newcomer: Eviction, now_ms: int) -> bool:
        longest_idle = next(iter(self._sessions.values()), None)
        if longest_idle is None:
            return False
        session_id = longest_idle.id
        if now_ms - longest_idle.used_ms <= EVICTION_MS:
            candidates = self._for_followers if newcomer.is_privileged else self._for_all
            if not candidates or newcomer < candidates[0]:
                return False
            session_id = candidates[0].session_id
        self.end(session_id)
        self.eviction_count += 1
        return True

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        session.used_ms = now_ms
        self._sessions.move_to_end(session.id)
        known = session.eviction
        is_old = now_ms - session.created_ms > EVICTION_MS
        if len(session.partitions) != known.size or is_old != known.is_old:
            self._unlist(known)
            session.eviction = known._replace(size=len(session.partitions), is_old=is_old)
            self._list(session.eviction)

    def _list(self, eviction: Eviction) -> None:
        self.partition_count += eviction.size
        for candidates in self._candidates(eviction):
            insort(candidates, eviction)

    def _unlist(self, eviction: Eviction) -> None:
        self.partition_count -= eviction.size
        for candidates in self._candidates(eviction):
            del candidates[bisect_left(candidates, eviction)]

    def _candidates(self, eviction: Eviction) -> Iterator[list[Eviction]]:
        """Return the eviction lists that a session belongs to."""
        if eviction.is_old:
            yield self._for_all
        if eviction.is_old or not eviction.is_privileged:
            yield self._for_followers


class _Sessionless:
    """A full fetch without a session."""

    is_overtaken = False

    def __init__(self, wanted: dict[PartitionKey, FetchedPartition]) -> None:
        self.partitions = wanted.values()

    def conclude(self, reads: list[Read]) -> Answer:
        return Answer(NO_SESSION, reads)


class _Full:
    """A full fetch that begins a session."""

    is_overtaken = False

    def __init__(
        self,
        sessions: FetchSessions,
        wanted: dict[PartitionKey, FetchedPartition],
        *,
        by_id: bool,
        is_privileged: bool,
        now_ms: int,
    ) -> None:
        self.partitions = wanted.values()
        self._wanted = wanted
        self._sessions = sessions
        self._by_id = by_id
        self._is_privileged = is_privileged
        self._now_ms = now_ms

    def conclude(self, reads: list[Read]) -> Answer:
        for partition, found in reads:
            partition.told(found)
        session_id = self._sessions.create(
            self._wanted,
            by_id=self._by_id,
            is_privileged=self._is_privileged,
            now_ms=self._now_ms,
        )
        return Answer(session_id, reads)


class _Incremental:
    """An incremental fetch of a session, with only changes in its response."""

    def __init__(self, session: FetchSession) -> None:
        self.partitions = session.partitions.values()
        self._session = session
        self._epoch = session.epoch

    @property
    def is_overtaken(self) -> bool:
        return self._session.epoch != self._epoch

    def conclude(self, reads: list[Read]) -> Answer:
        session = self._session
        if self.is_overtaken:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, "overtaken by the next request")
        told = []
        for read in reads:
            partition, found = read
            if isinstance(found, ApiError) or not found.records.size_bytes:
                if not partition.is_new(found):
                    continue
            else:
                session.to_the_end(partition)
            partition.told(found)
            told.append(read)
        return Answer(session.id, told)


def _wanted(request: FetchRequest, *, by_id: bool) -> dict[PartitionKey, FetchedPartition]:
    fetched: dict[PartitionKey, FetchedPartition] = {}
    for topic in request.topics:
        name, topic_id = topic.topic, topic.topic_id
        for wanted in topic.partitions:
            key = (topic_id if by_id else name, wanted.partition)
            fetched[key] = FetchedPartition(name, topic_id, wanted, by_id=by_id)
    return fetched
