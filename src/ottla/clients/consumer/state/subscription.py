"""The state of a consumer: subscribed topics, assigned partitions, and the position in each.

    UNPLACED ──committed offset──► VALIDATING ──the log agrees──► READING
        │                              │                          │   ▲
        └──nothing committed──► RESETTING ◄──offset out of range──┘   │
                                   └──────offset found────────────────┘

Two threads use it: the event loop's, which fetches, and in a synchronous consumer the polling
thread. Both hold `lock` to change it, or to read two values that belong together. The lock is never
held across an await.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from threading import RLock
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.clients.consumer.state.errors import NotAssignedError
from ottla.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.consumer.state.partition_progress import PartitionProgress
    from ottla.wire.records.consumer_record import ConsumerRecord

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
NO_REPLICA: Final = -1


class Position(NamedTuple):
    """The next offset to read, and the leader epoch of the record before it, -1 if unknown."""

    offset: int
    leader_epoch: int = NO_EPOCH


class Phase(Enum):
    """The phases of a partition; see the drawing above."""

    UNPLACED = auto()
    RESETTING = auto()
    VALIDATING = auto()
    READING = auto()


class Choice(Enum):
    """The source of a consumer's partitions; the choices exclude each other."""

    NOTHING = auto()
    TOPICS = auto()
    PATTERN = auto()
    BY_HAND = auto()


@dataclass(slots=True)
class AssignedPartition:
    """The state of one assigned partition."""

    name: TopicPartition
    phase: Phase = Phase.UNPLACED
    position: Position | None = None
    """The next record for the application; None until it is known."""
    fetch_position: Position | None = None
    """The offset of the next fetch: ahead of `position` by the buffered records."""
    generation: int = 0
    """Counts seeks; records fetched for an earlier generation are dropped."""
    is_paused: bool = False
    is_being_revoked: bool = False
    """Whether the group is revoking it: it is neither fetched nor returned by poll."""
    reset_time_ms: int | None = None
    """While RESETTING: the time to look up (-1 end, -2 start); None by auto.offset.reset."""
    buffered_bytes: int = 0
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    read_replica: int = NO_REPLICA
    """The follower from which the leader wants the consumer to fetch (KIP-392)."""
    read_replica_until: float = 0.0
    """When to ask the leader again, on the loop's clock."""
    validated_epoch: int = NO_EPOCH
    """The leader epoch of the position's last validation."""
    retry_at: float = 0.0
    """The end of the backoff, on the loop's clock."""
    topic_id: bytes = b""
    failure: Exception | None = None
    """The error that the application must see before this partition continues."""
    progress: "PartitionProgress | None" = None
    """The unprocessed records of ordered workers, between `consumed` and `position`."""

    @property
    def is_fetchable(self) -> bool:
        """Whether it may be fetched."""
        is_wanted = not (self.is_paused or self.is_being_revoked or self.failure)
        return is_wanted and self.phase is Phase.READING

    @property
    def must_tell(self) -> bool:
        """Whether the failure is due: all earlier records have been consumed."""
        return self.failure is not None and not (self.is_paused or self.buffered_bytes)

    def place(self, position: Position, phase: Phase) -> None:
        """Seek: buffered records and fetches in flight are outdated."""
        self.position = self.fetch_position = position
        self.phase = phase
        self.failure = None
        self.reset_time_ms = None
        self.retry_at = 0.0
        self.validated_epoch = NO_EPOCH
        self._forget_buffered()

    def lose_position(self, reset_time_ms: int | None, phase: Phase = Phase.RESETTING) -> None:
        """Start a reset, to this time or by auto.offset.reset."""
        self.position = self.fetch_position = None
        self.phase = phase
        self.failure = None
        self.reset_time_ms = reset_time_ms
        self.retry_at = 0.0
        self._forget_buffered()

    def _forget_buffered(self) -> None:
        self.generation += 1
        self.buffered_bytes = 0
        self.progress = None


@dataclass(frozen=True, slots=True)
class RebalanceListener:
    """The application's rebalance callbacks, each called with a list of partitions."""

    on_assigned: Callable[[list[TopicPartition]], object] | None = None
    on_revoked: Callable[[list[TopicPartition]], object] | None = None
    on_lost: Callable[[list[TopicPartition]], object] | None = None


def _do_nothing() -> None:
    """Ignore a rebalance."""


@dataclass(slots=True)
class SubscriptionState:
    """The subscription and all partitions. `on_change` notifies the fetcher of changes."""

    choice: Choice = Choice.NOTHING
    topics: frozenset[str] = frozenset()
    """The subscribed topics, or the matches of the pattern."""
    pattern: re.Pattern[str] | None = None
    listener: RebalanceListener = field(default_factory=RebalanceListener)
    assigned: dict[TopicPartition, AssignedPartition] = field(default_factory=dict)
    unyielded: "deque[ConsumerRecord]" = field(default_factory=deque)
    """Records that an iterator has taken and not yielded yet: the position is behind them,
    `consumed` is not."""
    must_tell: bool = False
    """Whether a partition's failure is due, at the fetcher's last check."""
    is_room_awaited: bool = False
    """Whether the fetcher waits for buffer space."""
    lock: RLock = field(default_factory=RLock)
    on_change: Callable[[], None] = _do_nothing

    # -- subscription ---------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Whether there is nothing to read: neither subscribed nor assigned."""
        return self.choice is Choice.NOTHING

    def subscribe(self, topics: Collection[str], listener: RebalanceListener) -> None:
        """Subscribe to topics by name; the group assigns partitions by `set_assignment`."""
        self._choose(Choice.TOPICS)
        with self.lock:
            self.topics, self.pattern, self.listener = frozenset(topics), None, listener
        self.on_change()

    def subscribe_pattern(self, pattern: re.Pattern[str], listener: RebalanceListener) -> None:
        """Subscribe to the topics whose full name matches; the group fills in `topics`."""
        self._choose(Choice.PATTERN)
        with self.lock:
            self.topics, self.pattern, self.listener = frozenset(), pattern, listener
        self.on_change()

    def assign_by_hand(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions, without a group; none ends the assignment."""
        names = list(partitions)
        self._choose(Choice.BY_HAND)
        if names:
            self.set_assignment(names)
        else:
            self.unsubscribe()

    def unsubscribe(self) -> None:
        """Drop all partitions."""
        with self.lock:
            self.choice, self.topics, self.pattern = Choice.NOTHING, frozenset(), None
            self.listener = RebalanceListener()
        self.set_assignment(())

    def _choose(self, choice: Choice) -> None:
        with self.lock:
            if self.choice not in {Choice.NOTHING, choice}:
                raise ValueError(
                    "subscribing to topics, to a pattern, and assigning partitions exclude each "
                    "other: call unsubscribe() first"
                )
            self.choice = choice

    # -- assignment and positions ---------------------------------------------------------------

    def set_assignment(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the assignment; partitions that stay keep their position."""
        with self.lock:
            kept, self.assigned = self.assigned, {}
            for name in partitions:
                self.assigned[name] = kept.get(name) or AssignedPartition(name)
                self.assigned[name].is_being_revoked = False
            self._drop_unyielded(name for name in kept if name not in self.assigned)
        self.on_change()

    def of(self, name: TopicPartition) -> AssignedPartition:
        """Return an assigned partition; NotAssignedError for any other."""
        found = self.assigned.get(name)
        if found is None:
            raise NotAssignedError(f"{name} is not assigned to this consumer")
        return found

    def consumed(self) -> dict[TopicPartition, Position]:
        """Return the positions that may be committed."""
        with self.lock:
            consumed = {
                name: partition.position
                if partition.progress is None
                else partition.progress.first or partition.position
                for name, partition in self.assigned.items()
                if partition.position is not None
            }
            for record in reversed(tuple(self.unyielded)):
                name = TopicPartition(record.topic, record.partition)
                if name in consumed:
                    consumed[name] = Position(record.offset, consumed[name].leader_epoch)
            return consumed

    # -- moving ---------------------------------------------------------------------------------

    def seek(self, name: TopicPartition, position: Position) -> None:
        """Continue at this position; with an epoch, the leader's log is validated first."""
        is_checked = position.leader_epoch != NO_EPOCH
        with self.lock:
            self.of(name).place(position, Phase.VALIDATING if is_checked else Phase.READING)
            self._drop_unyielded((name,))
        self.on_change()

    def place_committed(self, committed: Mapping[TopicPartition, Position]) -> None:
        """Apply the group's committed offsets to partitions still without a position."""
        with self.lock:
            for name, position in committed.items():
                partition = self.assigned.get(name)
                if partition is not None and partition.phase is Phase.UNPLACED:
                    self.seek(name, position)

    def reset(self, names: Iterable[TopicPartition], time_ms: int | None) -> None:
        """Reset positions to a time: -1 the end, -2 the start, None by auto.offset.reset."""
        with self.lock:
            for name in names:
                self.of(name).lose_position(time_ms)
                self._drop_unyielded((name,))
        self.on_change()

    def give_back(self, of: Collection[TopicPartition] | None = None) -> None:
        """Rewind to an iterator's position: records that it holds are fetched again."""
        with self.lock:
            consumed = self.consumed()
            names = {TopicPartition(r.topic, r.partition) for r in self.unyielded}
            if of is not None:
                names.intersection_update(of)
            for name in names & consumed.keys():
                self.of(name).place(consumed[name], Phase.READING)
            self._drop_unyielded(names)
        if names:
            self.on_change()

    def pause(self, names: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions; buffered records stay, outside of iterators."""
        paused = list(names)
        with self.lock:
            for name in paused:
                self.of(name).is_paused = True
            self.give_back(paused)
        self.on_change()  # a full buffer of these may have delayed the other partitions

    def resume(self, names: Iterable[TopicPartition]) -> None:
        """Resume paused partitions."""
        with self.lock:
            for name in names:
                self.of(name).is_paused = False
        self.on_change()

    def mark_revoking(self, names: Collection[TopicPartition]) -> None:
        """Stop returning records of partitions that the group is about to revoke."""
        with self.lock:
            for name in names:
                if name in self.assigned:
                    self.assigned[name].is_being_revoked = True
            self.give_back(names)

    def _drop_unyielded(self, names: Iterable[TopicPartition]) -> None:
        dropped = set(names)
        if dropped and self.unyielded:
            kept = [r for r in self.unyielded if (r.topic, r.partition) not in dropped]
            self.unyielded.clear()
            self.unyielded.extend(kept)
