"""Errors of the REST proxy, with Confluent's codes, and the errors of clients that become them."""

from typing import Final

from ottla.clients.errors import RETRIABLE
from ottla.clients.producer.state.errors import RecordTooLargeError
from ottla.clients.schemas.registry_calls import RegistryError, RegistryUnreachableError
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.schemas.parsed_schema import InvalidSchemaError

REASON_CHARACTERS_MAX: Final = 500
"""Longer reasons are cut: they may quote input."""

_NO_SUCH_TOPIC: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
_FORBIDDEN: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_BAD_REQUESTS: Final = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_RECORD,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.POLICY_VIOLATION,
    }
)
_STATE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


_FAILURES: Final = (
    (RegistryUnreachableError, 50302, "The schema registry cannot be reached"),
    (InvalidSchemaError, 42205, "The schema is not valid"),
    (RecordTooLargeError, 40002, "The record is too large"),
    (TimeoutError, 50003, "The brokers did not answer in time"),
    (OSError, 50302, "The brokers cannot be reached"),
)
"""In this order: some are kinds of others."""


class RestError(Exception):
    """A refusal with a code. The first three digits of a code of five are the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.code // 100 if self.code > 999 else self.code


def short(reason: object) -> str:
    """Return a reason as text of bounded length."""
    text = str(reason)
    return text if len(text) <= REASON_CHARACTERS_MAX else text[:REASON_CHARACTERS_MAX] + "…"


def topic_not_found(topic: str) -> RestError:
    """Return 40401."""
    return RestError(40401, f"Topic '{short(topic)}' not found.")


def partition_not_found(topic: str, partition: int) -> RestError:
    """Return 40402."""
    return RestError(40402, f"Partition {partition} of topic '{short(topic)}' not found.")


def instance_not_found(name: str) -> RestError:
    """Return 40403."""
    return RestError(
        40403,
        f"Consumer instance '{short(name)}' not found: it was never created, deleted, or idle for "
        "too long.",
    )


def unprocessable(message: str) -> RestError:
    """Return 422, for a request of the right form that has no meaning."""
    return RestError(422, message)


def conversion_failed(place: str, reason: object) -> RestError:
    """Return 42203: a value does not fit its schema or format."""
    return RestError(42203, f"{place} cannot be converted: {short(reason)}")


def from_client(error: Exception) -> RestError | None:
    """Return the refusal for an error of a client; None for an error of the proxy itself."""
    if isinstance(error, RestError):
        return error
    if isinstance(error, ApiError):
        return _from_broker(error)
    if isinstance(error, RegistryError):
        code = error.code if error.code in {40401, 40402, 40403} else 42205
        return RestError(code, f"The schema registry refuses: {short(error.message)}")
    for kind, code, meaning in _FAILURES:
        if isinstance(error, kind):
            return RestError(code, f"{meaning}: {short(error)}")
    return None


def _from_broker(error: ApiError) -> RestError:
    detail = short(error.detail or error.code.name)
    code = 50002
    if error.code in _NO_SUCH_TOPIC:
        code = 40401
    elif error.code is ErrorCode.GROUP_ID_NOT_FOUND:
        code = 404
    elif error.code in _FORBIDDEN:
        code = 40301
    elif error.code in _BAD_REQUESTS:
        code = 40002
    elif error.code in _STATE:
        code = 40903
    elif error.code in RETRIABLE:
        code = 50003
    return RestError(code, f"{error.code.name}: {detail}")
