"""The rules of a consumer's membership in a classic group: a state machine without I/O.

Two drivers execute its decisions (`membership.py`). The poll executes `next_step`: commits before a
revocation, listeners, the new assignment. A background task executes `next_request`: JoinGroup and
SyncGroup, heartbeats, LeaveGroup. Both ask again after every event. An interrupted listener needs
no cleanup, because the same step is due again. Every time comes from the caller.

    state        meaning                                      next state
    UNJOINED     no membership, or a join was refused         REVOKING    a poll, if subscribed
    REVOKING     commit, then revoke before a join: all       JOINING     nothing is left to revoke
                 partitions, or, if cooperative, those of
                 unsubscribed topics
    JOINING      JoinGroup in flight, or in backoff           SYNCING     the response
                                                              UNJOINED    refused
    SYNCING      SyncGroup in flight                          RECONCILING the response
                                                              JOINING     a retriable error
                                                              UNJOINED    refused
    RECONCILING  commit, then revoke the partitions that      STABLE      nothing is left to revoke
                 the new assignment lacks
    STABLE       the assignment is complete                   REVOKING    a poll, if a rejoin is due
    FENCED       the coordinator removed the member; its      UNJOINED    the partitions are dropped
                 partitions are lost
    LEAVING      unsubscribe or close                         UNJOINED    left
                                                              REVOKING    interrupted
    FATAL        every poll raises the error

    Besides, every state but FENCED becomes FENCED, or UNJOINED if it has no partitions, when the
    coordinator does not know the member or the generation, or after max.poll.interval.ms without a
    poll. FATAL follows on an error that a retry cannot change, and on `on_closed`. Every state
    becomes LEAVING. `_MOVES` is the same table, and each move is asserted against it.

The states have Kafka's names: UNJOINED to STABLE as in its classic consumer, where REVOKING is the
`onJoinPrepare` of a poll, and JOINING and SYNCING are PREPARING_REBALANCE and COMPLETING_REBALANCE;
RECONCILING, FENCED, LEAVING and FATAL as in KIP-848, which needs the same steps in a poll.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from ottla.clients.assignors.assignor import PreviousAssignment
from ottla.clients.config.settings import ClientSettings
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import Choice, SubscriptionState
from ottla.clients.errors import RETRIABLE, UnreachableError
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition

NO_GENERATION: Final = -1
REMOVED: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
"""The coordinator's codes for an unknown member or an old generation."""
SILENT: Final = "the time between two polls was longer than max.poll.interval.ms"
WAKING_SECONDS: Final = 0.05
"""The time for a waiting poll to report itself before the application counts as silent."""
_CHANGED: Final = "the subscription has changed"
_FIRST: Final = "the consumer has subscribed"
_SUBSCRIBED: Final = (Choice.TOPICS, Choice.PATTERN)
_PASSING: Final = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED)


@dataclass(frozen=True, slots=True)
class Generation:
    """A member id and the generation of its membership; empty before the first join."""

    generation_id: int = NO_GENERATION
    member_id: str = ""

    @property
    def is_member(self) -> bool:
        """Whether the member belongs to a generation."""
        return self.generation_id > NO_GENERATION


class MemberState(Enum):
    """The states of a member; see the table above."""

    UNJOINED = auto()
    REVOKING = auto()
    JOINING = auto()
    SYNCING = auto()
    RECONCILING = auto()
    STABLE = auto()
    FENCED = auto()
    LEAVING = auto()
    FATAL = auto()


UNJOINED, REVOKING, JOINING, SYNCING, RECONCILING, STABLE, FENCED, LEAVING, FATAL = MemberState
_REMOVAL: Final = (UNJOINED, FENCED, LEAVING, FATAL)
_MOVES: Final = {
    UNJOINED: (REVOKING, *_REMOVAL),
    REVOKING: (JOINING, *_REMOVAL),
    JOINING: (SYNCING, *_REMOVAL),
    SYNCING: (JOINING, RECONCILING, *_REMOVAL),
    RECONCILING: (STABLE, *_REMOVAL),
    STABLE: (REVOKING, *_REMOVAL),
    FENCED: (UNJOINED, LEAVING, FATAL),
    LEAVING: (REVOKING, *_REMOVAL),
    FATAL: (LEAVING, FATAL),
}


class Act(Enum):
    """The acts of a poll."""

    COMMIT = auto()
    """Commit these partitions in the background if auto-commit is on; then `on_last_commit`."""
    REVOKE = auto()
    """Call `on_revoked`, and drop the partitions."""
    LOSE = auto()
    """Call `on_lost`, and drop the partitions, which other members own already."""
    JOIN = auto()
    """Start the background task anew: it joins."""
    ASSIGN = auto()
    """Set the assignment, and call `on_assigned`."""


class Step(NamedTuple):
    """One act of a poll, and its partitions."""

    act: Act
    partitions: tuple[TopicPartition, ...] = ()


class Request(Enum):
    """The requests of the background task."""

    JOIN = auto()
    """JoinGroup, then SyncGroup."""
    HEARTBEAT = auto()
    LEAVE = auto()
    """LeaveGroup for the generation before this decision: the application does not poll."""


class MembershipMachine:
    """One member. It reads the subscription and the assignment, and changes neither.

    Only the event loop's thread calls it, except `is_due` and `on_poll`, which the polling thread
    calls, too.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        settings: ConsumerSettings,
        client: ClientSettings,
        *,
        is_cooperative: bool,
    ) -> None:
        self.state = UNJOINED
        self.generation = Generation()
        self.assignment_generation = Generation()
        """The generation of the current assignment. It is kept after the partitions are lost, so
        that the coordinator refuses commits on its behalf, such as those of transactions."""
        self.previous = PreviousAssignment()
        self.rejoin_reason: str | None = _FIRST
        self.join_reason = _FIRST
        """The reason of the latest JoinGroup, for the coordinator's log."""
        self.fatal: Exception | None = None
        """The error of FATAL: a final one, or ClientClosedError."""
        self.rebalance_count = 0
        self.is_cooperative = is_cooperative
        self._subscription = subscription
        self._settings = settings
        self._client = client
        self._joined_for: tuple[object, frozenset[str]] | None = None
        self._target: tuple[TopicPartition, ...] = ()
        """The assignment from SyncGroup, in RECONCILING."""
        self._committing: tuple[TopicPartition, ...] | None = None
        """The partitions whose last commit is running."""
        self._committed: tuple[TopicPartition, ...] | None = None
        """The partitions whose last commit is over: they may be revoked."""
        self._join_error: Exception | None = None
        """The error of a refused join, for the next poll."""
        self._polled_at = 0.0
        self._heartbeat_at = 0.0
        self._join_at = 0.0
        self._backoff_ms = client.retry_backoff_ms

    # -- questions ------------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        """Whether the group assigns the partitions."""
        return self._subscription.choice in _SUBSCRIBED

    @property
    def is_joining(self) -> bool:
        """Whether a request to join is in flight or in backoff."""
        return self.state is JOINING or self.state is SYNCING

    @property
    def is_rebalancing(self) -> bool:
        """Whether a join has begun, and its assignment is not complete."""
        return self.is_joining or self.state is RECONCILING

    @property
    def has_lost(self) -> bool:
        """Whether other members own the partitions that are still assigned here."""
        is_assigned = self.is_subscribed and bool(self._subscription.assigned)
        return is_assigned and not self.generation.is_member

    @property
    def may_auto_commit(self) -> bool:
        """Whether automatic commits are due after their interval."""
        return self.state is STABLE or self.state is UNJOINED

    # -- polls ----------------------------------------------------------------------------------

    def on_poll(self, now: float) -> None:
        """Record that the application is alive."""
        self._polled_at = now

    def is_due(self) -> bool:
        """Return whether `next_step` has something to do; from any thread."""
        if self.state is FATAL:
            return True
        if not self.is_subscribed or self._committing is not None:
            return False
        if self.state is STABLE:
            return self.rejoin_reason is not None or self._joined_for != self._wanted
        return not self.is_joining and self.state is not LEAVING

    def next_step(self) -> Step | None:
        """Return the next act of a poll, None if there is none; raises a pending error.

        A step that was interrupted is returned again, because the assignment lacks its effect. Only
        COMMIT and JOIN must begin at once, without a suspension, and ASSIGN set the assignment.
        """
        self.raise_fatal()
        if self._join_error is not None:
            error, self._join_error = self._join_error, None
            raise error
        if not self.is_due():
            return None
        if self.state is FENCED:
            if lost := tuple(self._subscription.assigned):
                return Step(Act.LOSE, lost)
            self._move(UNJOINED)
        if self.state is UNJOINED or self.state is STABLE:
            self._move(REVOKING)
        return self._prepare() if self.state is REVOKING else self._reconcile()

    def on_last_commit(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Let these partitions be revoked: their commit has ended, or none was needed."""
        if self._committing == partitions:
            self._committing, self._committed = None, partitions

    def raise_fatal(self) -> None:
        """Raise the error that ends this membership, if there is one."""
        if self.fatal is not None:
            raise self.fatal

    @property
    def _wanted(self) -> tuple[object, frozenset[str]]:
        return self._subscription.pattern, self._subscription.topics

    def _prepare(self) -> Step | None:
        names = tuple(self._subscription.assigned)
        if self.is_cooperative:
            # The topics of a new pattern are not known before the join, so nothing can go yet.
            is_known = self._subscription.choice is Choice.TOPICS
            names = tuple(name for name in names if is_known and not self._is_wanted(name))
        if names:
            return self._revocation(names)
        self.join_reason, self.rejoin_reason = self.rejoin_reason or _CHANGED, None
        self._move(JOINING)
        return Step(Act.JOIN)

    def _reconcile(self) -> Step | None:
        self.assignment_generation = self.generation
        self.previous = PreviousAssignment(self._target, self.generation.generation_id)
        given = dict.fromkeys(filter(self._is_wanted, self._target))
        if gone := tuple(name for name in self._subscription.assigned if name not in given):
            self.rejoin_reason = "partitions were revoked, and can be given to others"
            return self._revocation(gone)
        self._move(STABLE)
        self.rebalance_count += 1
        return Step(Act.ASSIGN, tuple(given))

    def _revocation(self, names: tuple[TopicPartition, ...]) -> Step | None:
        if self._committed == names:
            return Step(Act.REVOKE, names)
        self._committing, self._committed = names, None
        return Step(Act.COMMIT, names)

    def _is_wanted(self, name: TopicPartition) -> bool:
        return name.topic in self._subscription.topics

    # -- joining --------------------------------------------------------------------------------

    def next_request(self, now: float) -> Request | float | None:
        """Return the request to send now, or the time to ask again, or None: nothing to send."""
        if self.state is JOINING:
            return Request.JOIN if now >= self._join_at else self._join_at
        if not self.generation.is_member or self.state in {UNJOINED, SYNCING}:
            return None
        silent_at = self._polled_at + self._settings.max_poll_interval_ms / 1000
        if now >= silent_at + WAKING_SECONDS:
            self._remove(ErrorCode.UNKNOWN_MEMBER_ID, SILENT)
            return Request.LEAVE
        if now >= silent_at:
            return silent_at + WAKING_SECONDS
        return (
            Request.HEARTBEAT if now >= self._heartbeat_at else min(self._heartbeat_at, silent_at)
        )

    def begin_join(self, pattern: object, topics: frozenset[str]) -> None:
        """Record the subscription of this JoinGroup: a rejoin is due once it changes."""
        self._joined_for = pattern, topics

    def on_member_id(self, member_id: str) -> None:
        """Adopt the id that the coordinator reserved: the next JoinGroup, or LeaveGroup, has it."""
        if not self.generation.is_member:
            self.generation = Generation(member_id=member_id)

    def on_join(self, generation: Generation) -> None:
        """Handle the response to JoinGroup."""
        if self.state is JOINING:
            self.generation = generation
            self._move(SYNCING)

    def on_sync(self, partitions: tuple[TopicPartition, ...], now: float) -> None:
        """Handle the response to SyncGroup: the next poll applies the assignment."""
        if self.state is SYNCING:
            self._target = partitions
            self._heartbeat_at = now + self._settings.heartbeat_interval_ms / 1000
            self._backoff_ms = self._client.retry_backoff_ms
            self._move(RECONCILING)

    def on_join_error(self, error: Exception, now: float) -> None:
        """Handle the failure of JoinGroup or SyncGroup; the next JoinGroup waits for a backoff.

        Only after a retriable error it needs no poll.
        """
        if not self.is_joining:
            return
        self._join_at = now + self._backoff_ms / 1000
        if _is_retriable(error):
            self._backoff_ms = min(2 * self._backoff_ms, self._client.retry_backoff_max_ms)
            if self.state is SYNCING:
                self._move(JOINING)
            return
        self._backoff_ms = self._client.retry_backoff_ms
        code = error.code if isinstance(error, ApiError) else None
        if code in REMOVED:
            self._remove(code, f"joining was answered with {code.name}")
            return
        self.rejoin_reason = "the group has begun another rebalance"
        if code not in _PASSING:
            self.rejoin_reason, self._join_error = "joining has failed", error
        self._move(UNJOINED)

    # -- membership -----------------------------------------------------------------------------

    def request_rejoin(self, reason: str) -> None:
        """Rejoin with the next poll, unless the member is joining already."""
        if not self.is_joining:
            self.rejoin_reason = reason

    def on_heartbeat(self, generation: Generation, error: Exception | None, now: float) -> None:
        """Handle a heartbeat's response; one of an earlier generation changes nothing."""
        if generation != self.generation:
            return
        code = error.code if isinstance(error, ApiError) else None
        is_failed = error is not None and code is not ErrorCode.REBALANCE_IN_PROGRESS
        pause_ms = (
            self._client.retry_backoff_ms if is_failed else self._settings.heartbeat_interval_ms
        )
        self._heartbeat_at = now + pause_ms / 1000
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.request_rejoin("the group is rebalancing")
        elif code in REMOVED:
            self._remove(code, f"a heartbeat was answered with {code.name}")
        elif error is not None and not _is_retriable(error):
            self.fail(error)

    def on_commit_error(self, generation: Generation, error: ApiError) -> None:
        """Handle a refused commit.

        A refusal of an earlier generation changes nothing. Neither does one during a rebalance,
        which replaces the generation anyway; but a fenced instance id is final even then.
        """
        if generation != self.generation:
            return
        if error.code is ErrorCode.FENCED_INSTANCE_ID:
            self.fail(error)
        elif self.is_rebalancing or not self.is_subscribed:
            return
        elif error.code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.request_rejoin("a commit was refused, as the group is rebalancing")
        elif error.code in REMOVED:
            self._remove(error.code, f"a commit was answered with {error.code.name}")

    def fail(self, error: Exception) -> None:
        """End the membership: raise this error from every poll from now on."""
        self.fatal = error
        self.generation = Generation()
        if self.state is not LEAVING:
            self._move(FATAL)

    def _remove(self, code: ErrorCode, reason: str) -> None:
        """End the membership; the next poll drops the partitions, and joins again."""
        is_known = code is ErrorCode.ILLEGAL_GENERATION
        self.generation = Generation(member_id=self.generation.member_id if is_known else "")
        self.previous = PreviousAssignment(self.previous.partitions)
        self.rejoin_reason = reason
        if self.state is not LEAVING:
            self._move(FENCED if self.has_lost else UNJOINED)

    # -- leaving --------------------------------------------------------------------------------

    def on_leave(self) -> None:
        """Begin to leave: no step is due, while heartbeats go on."""
        self._move(LEAVING)

    def on_left(self) -> None:
        """Return to the beginning, unless a listener has closed the consumer meanwhile."""
        if self.state is not LEAVING:
            return
        self.generation = self.assignment_generation = Generation()
        self.previous = PreviousAssignment()
        self.rejoin_reason = _FIRST
        self.fatal = self._join_error = self._joined_for = None
        self._move(UNJOINED)

    def on_leave_interrupted(self) -> None:
        """Remain a member: the next poll joins again, and then reads on."""
        if self.state is LEAVING:
            self.rejoin_reason = "leaving was broken off"
            is_final = self.fatal is not None
            self._move(FATAL if is_final else FENCED if self.has_lost else REVOKING)

    def on_closed(self, error: Exception) -> None:
        """End for good."""
        self.fatal = error
        self._move(FATAL)

    def _move(self, state: MemberState) -> None:
        assert state in _MOVES[self.state], f"no move from {self.state.name} to {state.name}"
        self.state = state
        self._committing = self._committed = None


def _is_retriable(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, ApiError):
        return error.code in RETRIABLE
    return isinstance(error, UnreachableError | TimeoutError)
