"""Failures of a request to a broker: of the network, or as an error code in the response."""

from collections.abc import Collection, Sequence
from typing import TypeVar

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError

T = TypeVar("T")


class UnreachableError(ConnectionError):
    """A broker is unreachable, is not a Kafka broker, or has closed; a retry may help."""


class NoResponseError(TimeoutError):
    """A timeout; the operation may have been executed."""


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
