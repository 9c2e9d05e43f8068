"""The state of a member: its generation, a pending rejoin, and its failure."""

from collections.abc import Callable
from logging import getLogger
from typing import Final

from ottla.clients.assignors.assignor import PreviousAssignment
from ottla.clients.consumer.group.group_requests import Generation
from ottla.clients.consumer.state.subscription import Choice, SubscriptionState
from ottla.model.error_code import ErrorCode

LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
"""The coordinator's codes for an unknown member or an old generation."""
SUBSCRIBED: Final = (Choice.TOPICS, Choice.PATTERN)
_FIRST: Final = "the consumer has subscribed"
_log = getLogger(__name__)


class MemberState:
    """The state that the tasks of a membership share. Only the event loop's thread changes it.

    The polling thread reads `is_lost`, `failure` and `rejoin_reason`, each on its own.
    """

    def __init__(self, group_id: str, state: SubscriptionState, wake: Callable[[], None]) -> None:
        self.group_id = group_id
        self._state = state
        self._wake = wake
        self.generation = Generation()
        self.reads_as = Generation()
        """The generation of the current assignment. It is kept after the partitions are lost, so
        that the coordinator refuses commits on its behalf, such as those of transactions."""
        self.previous = PreviousAssignment()
        self.rejoin_reason: str | None = _FIRST
        self.is_lost = False
        """Whether other members own the partitions that are still assigned here."""
        self.failure: Exception | None = None
        """A final error, or ClientClosedError after close."""
        self.is_joining = False

    @property
    def is_subscribed(self) -> bool:
        """Whether the group assigns the partitions."""
        return self._state.choice in SUBSCRIBED

    def become(self, generation: Generation) -> None:
        """Adopt the member id and generation from the coordinator."""
        self.generation = generation

    def request_rejoin(self, reason: str) -> None:
        """Rejoin with the next poll; a waiting poll is woken."""
        if self.rejoin_reason is None:
            _log.info("group %r: joining again: %s", self.group_id, reason)
        self.rejoin_reason = reason
        self._wake()

    def lose(self, code: ErrorCode, reason: str) -> None:
        """End the membership; the next poll drops the partitions."""
        is_known = code is ErrorCode.ILLEGAL_GENERATION
        self.generation = Generation(member_id=self.generation.member_id if is_known else "")
        self.previous = PreviousAssignment(self.previous.partitions)
        self.is_lost = self.is_subscribed and bool(self._state.assigned)
        self.request_rejoin(reason)

    def fail(self, error: Exception) -> None:
        """Raise this error from every poll from now on."""
        _log.error("%s", error)
        self.failure = error
        self.generation = Generation()
        self.is_lost = self.is_subscribed and bool(self._state.assigned)
        self._wake()

    def raise_failure(self) -> None:
        """Raise the final error, if there is one."""
        if self.failure is not None:
            raise self.failure

    def reset(self) -> None:
        """Return to the state before the first join."""
        self.generation = self.reads_as = Generation()
        self.previous = PreviousAssignment()
        self.rejoin_reason = _FIRST
        self.is_lost = False
        self.failure = None
