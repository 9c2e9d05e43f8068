"""Sessions and waiting members: state that is never written to the log.

Heartbeats and phases of a rebalance set deadlines. After a reload all of it is gone: every member
of a loaded group gets a new session, and clients repeat their waiting requests.
"""

from enum import Enum
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple

from ottla.machines.moment import Moment
from ottla.wire.messages.join_group import JoinGroupResponse

_STALE_ENTRIES_MIN: Final = 64


class Phase(Enum):
    """The meaning of a deadline."""

    SESSION = "session of a member"
    JOIN = "waiting for members to join"
    SYNC = "waiting for members to sync"
    RETENTION = "keeping offsets without a look at their age"


class Due(NamedTuple):
    """Names a deadline: of a member, of a group, or of the whole machine."""

    phase: Phase
    group_id: str = ""
    member_id: str = ""


class Deadlines:
    """One deadline per name, on the monotonic clock.

    Postponing, which every heartbeat does, costs one dict entry: the heap learns of it when the
    old time has come. Its size stays within twice the number of deadlines.
    """

    def __init__(self) -> None:
        self._at_by_due: dict[Due, int] = {}
        self._heap: list[tuple[int, int, Due]] = []
        self._heaped_at_by_due: dict[Due, int] = {}
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._at_by_due)

    def set(self, due: Due, now: Moment, delay_ms: int) -> None:
        """Set or move a deadline. It is at least one millisecond ahead, even without a delay."""
        at_ms = now.monotonic_ms + max(delay_ms, 1)
        self._at_by_due[due] = at_ms
        heaped_at_ms = self._heaped_at_by_due.get(due)
        if heaped_at_ms is None or at_ms < heaped_at_ms:
            self._push(due, at_ms)

    def cancel(self, due: Due) -> None:
        """Forget a deadline, if there is one."""
        self._at_by_due.pop(due, None)
        if len(self._heap) > 2 * len(self._at_by_due) + _STALE_ENTRIES_MIN:
            self._rebuild()

    def next_ms(self) -> int | None:
        """Return when the earliest deadline passes."""
        while self._heap:
            at_ms, number, due = self._heap[0]
            really_at_ms = self._at_by_due.get(due)
            if self._heaped_at_by_due.get(due) != at_ms:
                heappop(self._heap)
            elif really_at_ms is None:
                heappop(self._heap)
                del self._heaped_at_by_due[due]
            elif really_at_ms > at_ms:
                heapreplace(self._heap, (really_at_ms, number, due))
                self._heaped_at_by_due[due] = really_at_ms
            else:
                return at_ms
        return None

    def take_due(self, now: Moment) -> Due | None:
        """Remove and return the earliest deadline that has passed."""
        at_ms = self.next_ms()
        if at_ms is None or at_ms > now.monotonic_ms:
            return None
        due = heappop(self._heap)[2]
        del self._heaped_at_by_due[due], self._at_by_due[due]
        return due

    def _push(self, due: Due, at_ms: int) -> None:
        self._pushed += 1
        self._heaped_at_by_due[due] = at_ms
        heappush(self._heap, (at_ms, self._pushed, due))

    def _rebuild(self) -> None:
        numbers = {entry[2]: entry[1] for entry in self._heap}
        self._heap = [(at_ms, numbers[due], due) for due, at_ms in self._at_by_due.items()]
        self._heaped_at_by_due = dict(self._at_by_due)
        heapify(self._heap)


class JoinAnswer(NamedTuple):
    """The response of a waiting JoinGroup, for its retry."""

    number: int
    response: JoinGroupResponse


class Attendance:
    """The members of one group that have joined, and the missing ones."""

    def __init__(self) -> None:
        self.pending: dict[str, None] = {}
        """Ids that were given out and have not come back yet."""
        self.joining: dict[str, int] = {}
        """Members that wait for the next generation, with the number of their request."""
        self.join_answers: dict[str, JoinAnswer] = {}
        """Responses that were not collected yet, the last response of each member."""
        self.new: set[str] = set()
        """Members in their first join: they cannot send heartbeats yet."""
        self.unsynced: set[str] = set()
        """Members of this generation that have not sent SyncGroup."""
        self.syncing: set[str] = set()
        """Members that wait for the leader's assignment."""
        self.is_initial = False
        """Whether the group was empty before this rebalance, and waits for more to come."""
        self.has_grown = False
        """Whether a member joined during the current delay of an initial rebalance."""
        self.delay_ms = 0
        self.delay_left_ms = 0

    def forget(self, member_id: str) -> None:
        """Expect nothing more of a member, and keep nothing for it but an id that was given out."""
        self.joining.pop(member_id, None)
        self.join_answers.pop(member_id, None)
        for members in (self.new, self.unsynced, self.syncing):
            members.discard(member_id)

    def is_excused(self, member_id: str) -> bool:
        """Whether a member need not send heartbeats, because its request waits here.

        A new member is not excused: its disappearance would go unnoticed, and clients that try
        again and again would fill the group.
        """
        if member_id in self.new:
            return False
        return member_id in self.joining or member_id in self.syncing


class SoftState:
    """The unwritten state of one machine: deadlines, notifications, numbers of requests."""

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self._notified: dict[str, None] = {}
        self._number = 0

    def notify(self, group_id: str) -> None:
        """Make the waiting requests of a group retry."""
        self._notified[group_id] = None

    def take_notified(self) -> tuple[str, ...]:
        """Return the groups notified since the last call."""
        notified = tuple(self._notified)
        self._notified.clear()
        return notified

    def next_number(self) -> int:
        """Return a number for a request that waits; none is given twice."""
        self._number += 1
        return self._number

    def start_session(self, group_id: str, member_id: str, now: Moment, timeout_ms: int) -> None:
        """Start a member's session timeout."""
        self.deadlines.set(Due(Phase.SESSION, group_id, member_id), now, timeout_ms)

    def end_session(self, group_id: str, member_id: str) -> None:
        """Stop listening for a member."""
        self.deadlines.cancel(Due(Phase.SESSION, group_id, member_id))
