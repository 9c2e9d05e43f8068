"""Exceptions that can be sent to another process, whatever their constructors want."""

from typing import Any, TypeVar

E = TypeVar("E", bound="PortableError")


class PortableError(Exception):
    """Is pickled with its words and its attributes, and not made anew from its words alone.

    That is what Python does, and fails at where a constructor takes anything else: then it is not
    the error that comes out of a pool of processes, but a broken pool.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[E], words: tuple[Any, ...]) -> E:
    return kind.__new__(kind, *words)
