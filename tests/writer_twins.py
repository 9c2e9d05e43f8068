"""Writes the same value with the compiled writer and with the generated one, its fallback."""

import random
from array import array
from enum import IntEnum
from typing import Any

from ottla.wire.schema import Field, Message, Struct
from ottla.wire.writing import compiled_writer_for, encode, writer_for
from tests.reader_twins import structs_in


class Twins:
    """Both writers of one version of a message."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self._cls = cls
        self._version = version
        # Without a compiler there is only one way to write.
        self._compiled = compiled_writer_for(cls, version) or self.generated

    def generated(self, value: Message) -> bytes:
        pieces: list[Any] = []
        writer_for(self._cls, self._version).function(value, pieces.append)
        return b"".join(pieces)

    def agree_on(self, value: Message) -> bool:
        """Whether both write the same bytes, or raise errors with the same text."""
        return self._outcome(value, self._compiled) == self._outcome(value, lambda _: None)

    def both_write(self, value: Message) -> bool:
        """Whether both write the same bytes, the compiled writer without its fallback."""
        written = self._compiled(value)
        return type(written) is bytes and written == self.generated(value)

    def _outcome(self, value: Message, writer: Any) -> Any:
        self._cls.writers[self._version] = writer
        try:
            return encode(value, self._version)
        except Exception as error:  # noqa: BLE001 - both writers must raise the same error
            return type(error), str(error)
        finally:
            del self._cls.writers[self._version]


class Digit(IntEnum):
    FOUR = 4


class Number(int):
    """A number that is equal to everything."""

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


class Text(str):
    __slots__ = ()


class Octets(bytes):
    def __len__(self) -> int:
        return 3


class Stranger(Struct):
    """A structure that no message has."""


class SliceOfAFile:
    def __len__(self) -> int:
        return 7


ODD: tuple[Any, ...] = (
    None,
    *(True, False, Digit.FOUR, Number(7), 1.5, float("nan"), -0.0, 1j),
    *(sign * (1 << bits) - less for bits in (7, 8, 15, 16, 31, 32, 63, 64) for sign in (1, -1)
      for less in (0, 1)),
    *("", "text", "\ud800", "é" * 20_000, "x" * 32_767, "x" * 32_768, Text("text")),
    *(b"", bytes(15), bytes(16), bytes(17), Octets(b"octets"), bytearray(b"array"), bytes(5000)),
    *(bytearray(16), memoryview(b"view"), memoryview(b"view")[::2], memoryview(bytes(5000))),
    *(memoryview(b"view").cast(kind) for kind in ("b", "c", "i")),
    memoryview(b"view").cast("B", (2, 2)),
    *(array("i", [1, 2]), SliceOfAFile(), Stranger(), object(), Struct),
    *([], [None], [1], ["text"], [Stranger()], (), (1, 2), {}, {1: b"tag"}, set(), range(3)),
)  # fmt: skip
"""Wrong values for most fields; some are valid in some fields."""


def misuse(value: Message, dice: random.Random) -> None:
    """Put an unusual value into a field, an array or the unknown tags, or delete a field."""
    struct = dice.choice(list(structs_in(value)))
    names = [*(field.name for field in type(struct).fields), "unknown_tags"]
    name = dice.choice(names)
    items = getattr(struct, name, None)
    if isinstance(items, list) and items and dice.random() < 0.5:
        items[dice.randrange(len(items))] = dice.choice(ODD)
    elif dice.random() < 0.05 and hasattr(struct, name):
        delattr(struct, name)
    else:
        setattr(struct, name, dice.choice(ODD))


def drop_default_structures(value: Message, version: int) -> None:
    """Remove structures from tagged fields whose default is an empty structure."""
    for struct in list(structs_in(value)):
        for field in type(struct).fields:
            if is_left_to_the_twin(field, version):
                setattr(struct, field.name, None)


def is_left_to_the_twin(field: Field, version: int) -> bool:
    return field.is_tagged(version) and isinstance(field.default, type)
