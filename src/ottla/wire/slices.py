"""Large messages in slices: generators that suspend after each item of an array.

The reader and the writer in C are fast and cannot be interrupted. So they handle messages with few
items only. Larger messages go through the generated code, which suspends as often as the caller
likes. Neither does I/O or reads a clock: the caller decides when to continue.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from ottla.wire.reading import (
    NO_LIMIT,
    READING_ERRORS,
    TooManyItemsError,
    explained,
    quickest_reader,
    reader_for,
    sliced_reader_for,
    wrong_end,
)
from ottla.wire.schema import Message
from ottla.wire.writing import WRITING_ERRORS, sliced_writer_for
from ottla.wire.writing import explained as explained_writing

ODD_BYTES_MAX: Final = 1 << 12
"""Up to this size, the generated reader reads messages that the C reader declines in one go."""
M = TypeVar("M", bound=Message)


def read_if_short(
    cls: type[M], version: int, buffer: memoryview, position: int, items_max: int
) -> M | None:
    """Read a message as `read` does; None if all its arrays together have more items.

    None as well if it is long and has tagged fields, or is unsound. Bytes behind it are left alone.
    """
    reader = cls.readers.get(version) or quickest_reader(cls, version)
    try:
        found = reader(buffer, position, NO_LIMIT, items_max)
        if found is None and len(buffer) - position <= ODD_BYTES_MAX:
            found = reader_for(cls, version).function(buffer, position, NO_LIMIT, items_max)
    except TooManyItemsError:
        return None
    except READING_ERRORS as error:
        raise explained(cls, version, error, reader_for(cls, version)) from None
    if found is None:
        return None
    value, end = found
    if end > len(buffer):
        raise wrong_end(cls, version, end, buffer)
    return value  # type: ignore[no-any-return]


def read_in_slices(
    cls: type[M],
    version: int,
    buffer: memoryview,
    position: int,
    *,
    memory_max: int,
    items_max: int,
) -> Iterator[M | None]:
    """Read a message: yield None after each item, and the message at last.

    Raises MessageTooLargeError before it makes an item of an array that breaks a limit, and
    ProtocolError for bytes that are no such message.
    """
    reader = sliced_reader_for(cls, version)
    try:
        for found in reader.function(buffer, position, memory_max, items_max):
            if found is None:
                yield None
    except READING_ERRORS as error:
        raise explained(cls, version, error, reader) from None
    value, end = found
    if end > len(buffer):
        raise wrong_end(cls, version, end, buffer)
    yield value


def write_in_slices(
    value: Message, version: int, append: Callable[[Any], object]
) -> Iterator[None]:
    """Write a message as `write` does, and yield after each item of an array."""
    writer = sliced_writer_for(type(value), version)
    try:
        yield from writer.function(value, append)
    except WRITING_ERRORS as error:
        raise explained_writing(value, version, error, writer) from error
