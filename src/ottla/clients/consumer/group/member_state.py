"""Where a member stands: who it is, whether it must join again, and what has gone wrong."""

from collections.abc import Callable
from logging import getLogger
from typing import Final

from ottla.clients.assignors.assignor import PreviousAssignment
from ottla.clients.consumer.group.group_requests import Generation
from ottla.clients.consumer.state.subscription import Choice, SubscriptionState
from ottla.model.error_code import ErrorCode

LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
"""By these codes the coordinator says that it does not, or no longer, count on this member."""
SUBSCRIBED: Final = (Choice.TOPICS, Choice.PATTERN)
_FIRST: Final = "the consumer has subscribed"
_log = getLogger(__name__)


class MemberState:
    """What the tasks of a membership tell each other. It is used on the event loop alone.

    Only `is_lost`, `failure` and `rejoin_reason` are also read from the polling thread, one by one.
    """

    def __init__(self, group_id: str, state: SubscriptionState, wake: Callable[[], None]) -> None:
        self.group_id = group_id
        self._state = state
        self._wake = wake
        self.generation = Generation()
        self.reads_as = Generation()
        """In which generation the assigned partitions were given; also when they are lost, so that
        whoever commits in its name, as transactions do, is refused."""
        self.previous = PreviousAssignment()
        self.rejoin_reason: str | None = _FIRST
        self.is_lost = False
        """Others have the partitions that are still assigned here."""
        self.failure: Exception | None = None
        """What nothing but closing helps against, or that this has been done."""
        self.is_joining = False

    @property
    def is_subscribed(self) -> bool:
        """Whether partitions come from the group."""
        return self._state.choice in SUBSCRIBED

    def become(self, generation: Generation) -> None:
        """Be who the coordinator says that we are."""
        self.generation = generation

    def request_rejoin(self, reason: str) -> None:
        """Join again with the next poll, which is woken if it waits."""
        if self.rejoin_reason is None:
            _log.info("group %r: joining again: %s", self.group_id, reason)
        self.rejoin_reason = reason
        self._wake()

    def lose(self, code: ErrorCode, reason: str) -> None:
        """Be no member any more; partitions are given up with the next poll."""
        is_known = code is ErrorCode.ILLEGAL_GENERATION
        self.generation = Generation(member_id=self.generation.member_id if is_known else "")
        self.previous = PreviousAssignment(self.previous.partitions)
        self.is_lost = self.is_subscribed and bool(self._state.assigned)
        self.request_rejoin(reason)

    def fail(self, error: Exception) -> None:
        """Raise this from every poll from now on."""
        _log.error("%s", error)
        self.failure = error
        self.generation = Generation()
        self.is_lost = self.is_subscribed and bool(self._state.assigned)
        self._wake()

    def raise_failure(self) -> None:
        """Raise what there is no way to go on from."""
        if self.failure is not None:
            raise self.failure

    def reset(self) -> None:
        """Be as if there had never been a group."""
        self.generation = self.reads_as = Generation()
        self.previous = PreviousAssignment()
        self.rejoin_reason = _FIRST
        self.is_lost = False
        self.failure = None
