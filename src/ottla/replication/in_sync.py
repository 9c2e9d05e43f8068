"""The replicas of a led partition: the ISR, the high watermark, and the keys of waiting followers.

A follower's fetch offset is its progress: a fetch from offset 7 means that it has everything before
7. The high watermark is the minimum over the **maximal** ISR: the current ISR, and the replicas
that the leader has asked the controller to add. Replicas that it has asked to remove count until
the response arrives. So, in whichever state the controller is, every replica that it may
elect has everything below the high watermark (KIP-497).

Fetches of followers wait for keys: one per following broker and kind of news. An append notifies
the replicas of its partition only, and a fetch waits for one or two keys, however many partitions
it names.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.model.identifiers import NO_OFFSET, BrokerId, Offset

NO_LEADER: Final = BrokerId(-1)
REPEATS_MIN: Final = 3
"""So often in a row a follower repeats a fetch before it counts as stuck. A throttle, or a
response that is full with other partitions, makes it repeat one, too."""
NEVER_MS: Final = -(1 << 62)
"""When a replica was caught up that is not known to have been."""

FollowerKey = tuple[str, int]
"""A kind of news, and the broker that follows."""


class Follower(NamedTuple):
    """A fetching replica: broker id and broker epoch."""

    broker_id: BrokerId
    broker_epoch: int


class Assignment(NamedTuple):
    """The replicas in the metadata, and this broker's id."""

    broker_id: BrokerId
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    partition_epoch: int


def log_end_key(broker_id: BrokerId) -> FollowerKey:
    """Return the key that is notified of an append to any log that this broker follows."""
    return "end", broker_id


def committed_key(broker_id: BrokerId) -> FollowerKey:
    """Return the key that is notified when the high watermark of such a log rises."""
    return "committed", broker_id


class FollowerKeys(NamedTuple):
    """The keys of all followers of one partition."""

    end: tuple[FollowerKey, ...] = ()
    committed: tuple[FollowerKey, ...] = ()

    @classmethod
    def of(cls, leader: BrokerId, replicas: Iterable[BrokerId]) -> "FollowerKeys":
        """Return the keys of all replicas but the leader."""
        ids = tuple(one for one in replicas if one != leader)
        return cls(tuple(map(log_end_key, ids)), tuple(map(committed_key, ids)))

    def notify_changed(self, former: "FollowerKeys", notify: Callable[[Hashable], None]) -> None:
        """Notify all followers, and replicas that have just lost their place or their leader."""
        for key in dict.fromkeys((*former.end, *self.end)):
            notify(key)


@dataclass(slots=True)
class ReplicaProgress:
    """The progress of one follower, as known to the leader."""

    broker_id: BrokerId
    broker_epoch: int = -1
    end_offset: Offset = NO_OFFSET
    """It has everything before this; -1 until it has fetched in this leader's epoch."""
    log_start_offset: Offset = NO_OFFSET
    """Where its log begins; -1 until it has said so."""
    caught_up_ms: int = 0
    """The last moment at which it had everything that the leader had."""
    repeats: int = 0
    """How often in a row it has fetched the same offset again after records were sent."""
    _asked_ms: int = 0
    _leader_end_offset: Offset = NO_OFFSET

    def fetched(
        self, offset: Offset, leader_end_offset: Offset, broker_epoch: int, now_ms: int
    ) -> None:
        """Record a fetch from an offset."""
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif offset >= self._leader_end_offset >= 0:
            # It has all records that existed at its last fetch.
            self.caught_up_ms = max(self.caught_up_ms, self._asked_ms)
        is_repeated = offset == self.end_offset < self._leader_end_offset
        self.repeats = self.repeats + 1 if is_repeated else 0
        self.end_offset = offset
        self.broker_epoch = broker_epoch
        self._asked_ms = now_ms
        self._leader_end_offset = leader_end_offset

    def begins_at(self, log_start_offset: Offset) -> bool:
        """Record its log start; return whether it has changed."""
        is_news = log_start_offset != self.log_start_offset
        self.log_start_offset = log_start_offset
        return is_news

    def is_caught_up(self, leader_end_offset: Offset, now_ms: int, lag_ms_max: int) -> bool:
        """Return whether it has been with the leader within this time."""
        return self.end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_ms_max


class InSync:
    """The replicas of one partition, as its leader sees them in one leader epoch."""

    def __init__(
        self,
        leader: BrokerId,
        replicas: Iterable[BrokerId],
        isr: tuple[BrokerId, ...],
        partition_epoch: int,
        *,
        epoch_start_offset: Offset,
        now_ms: int,
    ) -> None:
        self.leader = leader
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.epoch_start_offset = epoch_start_offset
        """Where the log ended when this leader began."""
        self.proposed: tuple[BrokerId, ...] | None = None
        """The ISR proposed to the controller, without a response yet."""
        self.awaited: set[BrokerId] = set()
        """The replicas that are about to join the ISR: the high watermark waits for them, or a busy
        producer would always be ahead of them."""
        self._began_ms = now_ms
        self.followers: dict[BrokerId, ReplicaProgress] = {}
        self.set_replicas(replicas)

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """Every replica that may be in the ISR by the controller's possible decisions."""
        if self.proposed is None:
            return self.isr
        return tuple(dict.fromkeys((*self.isr, *self.proposed)))

    def set_replicas(self, replicas: Iterable[BrokerId]) -> None:
        """Apply a change of the assignment; progress of replicas that stay is kept."""
        self.followers = {
            one: self.followers.get(one) or self._unheard_of(one)
            for one in replicas
            if one != self.leader
        }
        self.awaited &= self.followers.keys()

    def _unheard_of(self, broker_id: BrokerId) -> ReplicaProgress:
        """Return the progress of a follower before its first fetch: an ISR member was caught up."""
        caught_up_ms = self._began_ms if broker_id in self.isr else NEVER_MS
        return ReplicaProgress(broker_id, caught_up_ms=caught_up_ms)

    # -- high watermark and low watermark -------------------------------------------------------

    def committed_to(self, leader_end_offset: Offset, min_isr: int) -> Offset | None:
        """Return up to where all of the maximal ISR have everything; None if too few are in it."""
        if len(self.isr) < min_isr:
            return None
        ends = [self._end_of(one) for one in (*self.maximal, *self.awaited) if one != self.leader]
        return min([leader_end_offset, *ends])

    def low_watermark(
        self, log_start_offset: Offset, is_alive: Callable[[BrokerId], bool]
    ) -> Offset:
        """Return the smallest log start offset of the leader and all live replicas.

        -1 if a replica has not reported its log start offset yet.
        """
        followers = self.followers.values()
        starts = [one.log_start_offset for one in followers if is_alive(one.broker_id)]
        return min([log_start_offset, *starts])

    def _end_of(self, broker_id: BrokerId) -> Offset:
        # An ISR member that is no replica any more is about to leave, and counts as empty.
        follower = self.followers.get(broker_id)
        return NO_OFFSET if follower is None else follower.end_offset

    # -- ISR changes ----------------------------------------------------------------------------

    def await_if_near(
        self, broker_id: BrokerId, leader_end_offset: Offset, now_ms: int, lag_ms_max: int
    ) -> None:
        """Wait for a follower that is about to be in sync, unless it is late."""
        is_near = broker_id not in self.isr and self.followers[broker_id].is_caught_up(
            leader_end_offset, now_ms, lag_ms_max
        )
        if is_near:
            self.awaited.add(broker_id)
        else:
            self.awaited.discard(broker_id)

    def may_join(self, broker_id: BrokerId, high_watermark: Offset) -> bool:
        """Return whether a follower has everything that a member of the ISR must have.

        That is everything committed, and everything before this leader's epoch: a part of it may be
        committed without this leader's knowledge (KIP-497, epoch start offset).
        """
        if self.proposed is not None or broker_id in self.isr:
            return False
        end_offset = self.followers[broker_id].end_offset
        return end_offset >= max(high_watermark, self.epoch_start_offset)

    def fell_behind(
        self, leader_end_offset: Offset, now_ms: int, lag_ms_max: int
    ) -> list[BrokerId]:
        """Return the members of the ISR that have not been caught up for too long.

        A replica with all records is caught up, even without recent fetches: while nothing is
        written its fetches are not examined.
        """
        for follower in self.followers.values():
            if follower.end_offset == leader_end_offset:
                follower.caught_up_ms = now_ms
        if self.proposed is not None:
            return []
        return [
            one
            for one in self.isr
            if one != self.leader
            and one in self.followers
            and not self.followers[one].is_caught_up(leader_end_offset, now_ms, lag_ms_max)
        ]

    def stuck_offsets(self) -> list[int]:
        """Return the offsets that followers keep fetching although records were sent.

        A batch that a follower refuses, because of its CRC, may be damaged on this broker.
        """
        followers = self.followers.values()
        return [one.end_offset for one in followers if one.repeats >= REPEATS_MIN]

    def propose(self, isr: tuple[BrokerId, ...]) -> None:
        """Propose this ISR; until the response arrives both count."""
        assert self.proposed is None, "one question at a time"
        assert self.leader in isr
        self.proposed = isr

    def decided(self, isr: tuple[BrokerId, ...], partition_epoch: int) -> bool:
        """Apply the controller's decision; False if it is not newer."""
        if partition_epoch <= self.partition_epoch:
            return False
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.proposed = None
        self.awaited.difference_update(isr)
        return True

    def refused(self) -> None:
        """Drop the proposal: the controller has refused it, and will not apply it later.

        Its new members are not waited for until they fetch again.
        """
        self.awaited.difference_update(self.proposed or ())
        self.proposed = None
