"""Fetch sessions (KIP-227): the broker remembers what a client fetches.

A full fetch (epoch 0) names every partition, and may begin a session. The next ones name its id
and epoch, and only what has changed: a partition with another offset, a new one, one to forget.
They are answered with only what is new, too. Epoch -1 wants no session, and ends the one it names.

When the slots are taken a newcomer gets one in three ways: the session that has been idle longest
goes if that is longer than two minutes; followers take one from a client; and a larger session
takes one from a smaller session that is older than two minutes. Else it gets none, and goes on
with full fetches. Clients that lose a session are told so, and begin anew.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple, Protocol, Self

from ottla.environment.randomness import Randomness
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.fetched import NO_REPLICA, Fetched
from ottla.replication.partition import Partition
from ottla.wire.messages.fetch import FetchPartition, FetchRequest

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_FULL_EPOCHS: Final = frozenset({INITIAL_EPOCH, FINAL_EPOCH})
EVICTION_MS: Final = 120_000
"""A session that is idle for longer, or at least this old, has to make room for others."""
PARTITIONS_MAX: Final = 200_000
"""In all sessions together: what is remembered of them takes up to a hundred megabytes."""

_INT32_MAX = 2**31 - 1
_UNTOLD = -1

PartitionKey = tuple[str | bytes, int]
"""A topic, by name or by id, and the number of a partition."""


class QuietMark(NamedTuple):
    """A partition when there was nothing more for a follower, by what makes a difference."""

    partition: Partition
    follower_news_count: int
    high_watermark: int
    log_start_offset: int
    wanted: FetchPartition

    @classmethod
    def of(cls, partition: Partition, found: Fetched, wanted: FetchPartition) -> Self:
        """Remember how it is now, when a follower has found this."""
        news_count = partition.follower_news_count
        return cls(partition, news_count, found.high_watermark, found.log_start_offset, wanted)


class FetchedPartition:
    """One partition that is fetched, and in a session, what its client was told last."""

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
        """Where topics are named by id, it is not known before someone has looked it up."""
        self.high_watermark = _UNTOLD
        self.log_start_offset = _UNTOLD
        self.quiet_mark: QuietMark | None = None
        """What was there for a follower when it was told that there was nothing more."""

    def is_new(self, found: Fetched | ApiError) -> bool:
        """Tell whether there is news in what was found, besides records."""
        return (
            isinstance(found, ApiError)
            or found.high_watermark != self.high_watermark
            or found.log_start_offset != self.log_start_offset
            or found.diverging is not None
            or found.preferred_replica != NO_REPLICA
        )

    def begins_later(self, found: Fetched | ApiError) -> bool:
        """Tell whether records were deleted since the client was told where the log begins."""
        return (
            not isinstance(found, ApiError)
            and found.log_start_offset > self.log_start_offset > _UNTOLD
        )

    def told(self, found: Fetched | ApiError) -> None:
        """Take note of what the client is told now. After an error everything is new."""
        if isinstance(found, ApiError):
            self.high_watermark = _UNTOLD
        else:
            self.high_watermark = found.high_watermark
            self.log_start_offset = found.log_start_offset


Read = tuple[FetchedPartition, Fetched | ApiError]


class Answer(NamedTuple):
    """Which session the client goes on with, and what it is told."""

    session_id: int
    reads: list[Read]


class Fetching(Protocol):
    """One request, from what it wants to what it is told."""

    @property
    def partitions(self) -> Collection[FetchedPartition]:
        """What to look at, in this order."""
        ...

    @property
    def is_overtaken(self) -> bool:
        """Whether the client has sent the next request of the session already."""
        ...

    def conclude(self, reads: list[Read]) -> Answer:
        """Say what of all that was found goes into the answer; ApiError if it is overtaken."""
        ...


class Eviction(NamedTuple):
    """Where a session stands among those that may have to go: the least goes first."""

    is_privileged: bool
    size: int
    session_id: int
    is_old: bool


class FetchSession:
    """What one client fetches. The epoch is that of its next request."""

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
        """Take over what has changed; what is new comes last."""
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
        """Let others go first the next time: this one has had its share."""
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
        self._for_followers: list[Eviction] = []  # these lists are sorted: who goes first
        self._for_all: list[Eviction] = []
        self.partition_count = 0
        self.eviction_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, request: FetchRequest, *, by_id: bool, is_privileged: bool, now_ms: int
    ) -> Fetching:
        """Find out what a request wants; ApiError if it names a session that is not like that."""
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
        """Name the lists that a session is in: who may take its slot."""
        if eviction.is_old:
            yield self._for_all
        if eviction.is_old or not eviction.is_privileged:
            yield self._for_followers


class _Sessionless:
    """A fetch that is answered in full, and forgotten."""

    is_overtaken = False

    def __init__(self, wanted: dict[PartitionKey, FetchedPartition]) -> None:
        self.partitions = wanted.values()

    def conclude(self, reads: list[Read]) -> Answer:
        return Answer(NO_SESSION, reads)


class _Full:
    """A fetch that is answered in full, and begins a session."""

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
    """The next fetch of a session, answered with what is new."""

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
