"""Interceptors: callbacks of the application for sent and consumed records.

An interceptor is any object with one or more of the methods of `Interceptor`, and not `close`
alone. Its exceptions are logged, and the next interceptor gets the unchanged argument: an
interceptor can neither stop nor lose a record.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from ottla.clients.config.setting_table import ClientSetting, some_object

RECORD_METHODS: Final = ("on_send", "on_acknowledgement", "on_consume", "on_commit")
R = TypeVar("R")
_log = logging.getLogger(__name__)


class Interceptor(Protocol):
    """The methods of interceptors; all are optional."""

    def on_send(self, record: Any, /) -> Any:
        """Return the record to send in place of this record, in the sending thread.

        It runs before serialization: key and value are the application's objects.
        """
        ...

    def on_acknowledgement(self, metadata: Any, error: BaseException | None, /) -> None:
        """Receive a record's metadata or error, in the client's thread: it must be short."""
        ...

    def on_consume(self, records: Sequence[Any], /) -> Sequence[Any]:
        """Return the records that poll returns, in the polling thread."""
        ...

    def on_commit(self, offsets: Mapping[Any, Any], /) -> None:
        """Receive the committed offsets."""
        ...

    def close(self) -> None:
        """Release resources when the client closes."""
        ...


class Interceptors:
    """The interceptors of one client, called in their order.

    `on_send` and the other lists are empty if no interceptor has the method, so that the hot path
    can skip the call.
    """

    __slots__ = ("closing", "on_acknowledgement", "on_commit", "on_consume", "on_send")

    def __init__(self, interceptors: Sequence[Any] = ()) -> None:
        self.on_send = _methods(interceptors, "on_send")
        self.on_acknowledgement = _methods(interceptors, "on_acknowledgement")
        self.on_consume = _methods(interceptors, "on_consume")
        self.on_commit = _methods(interceptors, "on_commit")
        self.closing = _methods(interceptors, "close")

    def sent(self, record: R) -> R:
        """Return the record to send."""
        return _passed_on(self.on_send, record)

    def acknowledged(self, metadata: Any, error: BaseException | None) -> None:
        """Call `on_acknowledgement` with the result of a record."""
        _told(self.on_acknowledgement, metadata, error)

    def consumed(self, records: R) -> R:
        """Return the records for the application."""
        return _passed_on(self.on_consume, records)

    def committed(self, offsets: Mapping[Any, Any]) -> None:
        """Call `on_commit` with the committed offsets."""
        _told(self.on_commit, offsets)

    def close(self) -> None:
        """Close all interceptors."""
        _told(self.closing)


def _methods(interceptors: Sequence[Any], name: str) -> tuple[Callable[..., Any], ...]:
    return tuple(getattr(row, name) for row in interceptors if hasattr(row, name))


def _passed_on(methods: tuple[Callable[..., Any], ...], given: R) -> R:
    for method in methods:
        try:
            given = method(given)
        except Exception:  # noqa: BLE001 - of the application: it must not lose a record
            _log.exception("an interceptor failed: %r", method)
    return given


def _told(methods: tuple[Callable[..., Any], ...], *said: Any) -> None:
    for method in methods:
        try:
            method(*said)
        except Exception:  # noqa: BLE001 - of the application: it must not lose a record
            _log.exception("an interceptor failed: %r", method)


def _read(given: Any) -> tuple[Any, ...]:
    listed = tuple(given) if isinstance(given, list | tuple) else (given,)
    for row in listed:
        if isinstance(row, str | type) or not any(hasattr(row, name) for name in RECORD_METHODS):
            raise ValueError(row)
    return listed


INTERCEPTORS: Final = ClientSetting(
    "interceptors",
    some_object(f"a list of objects that have one of {', '.join(RECORD_METHODS)}", _read),
    "Objects that see every record go out, or come in.",
    aliases=("interceptor.classes",),
    is_object=True,
)
