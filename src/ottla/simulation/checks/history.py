"""The operations of clients and their outcomes: the input of the checkers.

An operation is atomic: the sends of one batch, some reads, or both in a transaction. Values are
unique, so that each can be found again. An operation has one of three outcomes:

* **ok**: it has happened;
* **failed**: it has definitely not happened, and never will;
* **unknown**: it may have happened, or may happen later.

In doubt the outcome is unknown: a wrong "ok" raises false alarms, a wrong "failed" hides
violations.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition

REFUSED: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Refusals that are final: no attempt, not even an earlier one, had an effect."""
REFUSED_ONCE: Final = REFUSED | {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""Refusals of a single attempt; an earlier attempt may have succeeded."""


class Outcome(Enum):
    """How an operation ended."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Sent(NamedTuple):
    """A value written; without an offset where no broker told it."""

    partition: TopicPartition
    value: str
    offset: int | None = None


class Read(NamedTuple):
    """A value that came from a partition."""

    partition: TopicPartition
    value: str
    offset: int


@dataclass(slots=True)
class Operation:
    """Something that a client did. Unknown, until its end is told."""

    client: str
    began: float
    sent: list[Sent] = field(default_factory=list)
    read: list[Read] = field(default_factory=list)
    moved: frozenset[TopicPartition] = frozenset()
    """Partitions that the client was given, or has sought in, since its operation before."""
    outcome: Outcome = Outcome.UNKNOWN
    ended: float | None = None


@dataclass(slots=True)
class Commit:
    """An offset that a group has committed, or tried to."""

    client: str
    group_id: str
    partition: TopicPartition
    offset: int
    outcome: Outcome = Outcome.UNKNOWN


class History:
    """Every operation, in the order in which they began.

    A client is one run of a program: a program that continues after an unknown outcome needs
    another client name, since its earlier requests may still arrive.
    """

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        self.operations: list[Operation] = []
        self.commits: list[Commit] = []
        self._now = now

    def begin(
        self,
        client: str,
        sent: Iterable[Sent] = (),
        moved: Iterable[TopicPartition] = (),
    ) -> Operation:
        """Record an operation before the client begins it."""
        operation = Operation(client, self._now(), list(sent), moved=frozenset(moved))
        self.operations.append(operation)
        return operation

    def end(self, operation: Operation, outcome: Outcome) -> None:
        """Record the outcome."""
        assert operation.ended is None, "it has ended already"
        operation.outcome = outcome
        operation.ended = self._now()

    def begin_commit(
        self, client: str, group_id: str, partition: TopicPartition, offset: int
    ) -> Commit:
        """Note an offset that is about to be committed."""
        commit = Commit(client, group_id, partition, offset)
        self.commits.append(commit)
        return commit


def outcome_of(error: ApiError | OSError, *, is_only_attempt: bool = False) -> Outcome:
    """Return the outcome that an error implies."""
    refused = REFUSED_ONCE if is_only_attempt else REFUSED
    if isinstance(error, ApiError) and error.code in refused:
        return Outcome.FAILED
    return Outcome.UNKNOWN
