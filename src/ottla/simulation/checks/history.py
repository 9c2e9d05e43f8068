"""What clients did, and what they know of it: the black box that checkers look into.

An operation is what a client does as one: the sends of one batch, some reads, or both in a
transaction; so it happens as a whole or not at all. Values are unique, so that each can be found
again. An operation has one of three ends, and which one it is decides what follows from it:

* **ok**: it has happened;
* **failed**: it has definitely not happened, nor will it;
* **unknown**: nobody knows. It may have happened, or happen later.

In doubt it is unknown: a wrong "ok" or "failed" is a false alarm, or blindness.
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
"""What is refused however often it is tried, so that no attempt before has done anything."""
REFUSED_ONCE: Final = REFUSED | {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""What has not happened if it was tried once; an attempt before may have had another end."""


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

    A client is one life of a program: one that goes on after an operation of unknown end needs
    another name, since what it sent before may still arrive.
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
        """Note what a client is about to do."""
        operation = Operation(client, self._now(), list(sent), moved=frozenset(moved))
        self.operations.append(operation)
        return operation

    def end(self, operation: Operation, outcome: Outcome) -> None:
        """Note what became of it."""
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
    """Tell what a failure says about what was tried."""
    refused = REFUSED_ONCE if is_only_attempt else REFUSED
    if isinstance(error, ApiError) and error.code in refused:
        return Outcome.FAILED
    return Outcome.UNKNOWN
