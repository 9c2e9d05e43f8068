"""The errors of clients besides ApiError: network failures, with a full sentence each."""

from collections.abc import Collection, Sequence
from typing import Final, TypeVar

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError

T = TypeVar("T")


class UnreachableError(ConnectionError):
    """A broker is unreachable, is not a Kafka broker, or has closed; a retry may help."""


class NoAnswerError(TimeoutError):
    """A timeout; the operation may have been executed."""


class ClientClosedError(RuntimeError):
    """The client is closed, perhaps during the call; the operation may have been executed."""


class ForkedClientError(RuntimeError):
    """The client belongs to the parent of this forked process."""


RETRIABLE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""The codes after which the same request may succeed, once metadata was refreshed."""


def error_code(number: int) -> ErrorCode:
    """Return the ErrorCode of a number; an unknown number is UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def check(number: int, detail: str | None = None, *, fine: Collection[ErrorCode] = ()) -> ErrorCode:
    """Return the code if it is NONE or in `fine`; raise ApiError for any other."""
    code = error_code(number)
    if code is ErrorCode.NONE or code in fine:
        return code
    raise ApiError(code, detail or "")


def only(items: Sequence[T], what: str) -> T:
    """Return the only item of a response; ProtocolError if it has none, or several."""
    if len(items) != 1:
        raise ProtocolError(f"the broker answered with {len(items)} times {what}, not one")
    return items[0]
