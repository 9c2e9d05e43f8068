"""Errors that can be pickled, and ApiError, which becomes an error code in a response."""

from typing import Any, TypeVar

from ottla.model.error_code import ErrorCode

E = TypeVar("E", bound="PicklableError")


class PicklableError(Exception):
    """Pickles its message and its attributes, and is restored without a call of the constructor.

    Python calls the constructor with the message alone, which fails if it takes anything else: then
    a pool of processes breaks instead of raising the error.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[E], words: tuple[Any, ...]) -> E:
    return kind.__new__(kind, *words)


class ApiError(PicklableError):
    """A request, or one partition of it, failed in a way the protocol can name."""

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        super().__init__(f"{code.name}: {detail}" if detail else code.name)
        self.code = code
        self.detail = detail
