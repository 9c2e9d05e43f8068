"""Functions of the application that see every record go out, and come in.

An interceptor is any object with one or more of the methods of `Interceptor`, and not `close`
alone. What one raises is logged, and the next one gets what the one before it had left: an
interceptor cannot stop a record, nor lose one.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from ottla.clients.config.setting_table import ClientSetting, some_object

RECORD_METHODS: Final = ("on_send", "on_acknowledgement", "on_consume", "on_commit")
R = TypeVar("R")
_log = logging.getLogger(__name__)


class Interceptor(Protocol):
    """All that an interceptor can have; it need not have all of it."""

    def on_send(self, record: Any, /) -> Any:
        """Return the record to send in place of this one, in the thread that sends it.

        It comes before serialization: key and value are what the application gave.
        """
        ...

    def on_acknowledgement(self, metadata: Any, error: BaseException | None, /) -> None:
        """Hear where a record landed, or why it did not; in the client's thread: be short."""
        ...

    def on_consume(self, records: Sequence[Any], /) -> Sequence[Any]:
        """Return the records that poll is to return, in the thread that polls."""
        ...

    def on_commit(self, offsets: Mapping[Any, Any], /) -> None:
        """Hear what was committed."""
        ...

    def close(self) -> None:
        """Hear that the client is closed."""
        ...


class Interceptors:
    """The interceptors of one client, asked in their order.

    Where nobody listens, `on_send` and its like are empty: a client on its hot path looks first.
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
        """Tell what became of a record."""
        _told(self.on_acknowledgement, metadata, error)

    def consumed(self, records: R) -> R:
        """Return the records to give out."""
        return _passed_on(self.on_consume, records)

    def committed(self, offsets: Mapping[Any, Any]) -> None:
        """Tell what was committed."""
        _told(self.on_commit, offsets)

    def close(self) -> None:
        """Tell that the client is closed."""
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
