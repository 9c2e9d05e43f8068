"""Exceptions that can be pickled, for any signature of their constructor."""

from typing import Any, TypeVar

E = TypeVar("E", bound="PortableError")


class PortableError(Exception):
    """Pickles its message and its attributes, and is restored without a call of the constructor.

    Python calls the constructor with the message alone, which fails if it takes anything else: then
    a pool of processes breaks instead of raising the error.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[E], words: tuple[Any, ...]) -> E:
    return kind.__new__(kind, *words)
