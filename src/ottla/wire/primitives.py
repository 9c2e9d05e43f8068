"""The variable-length primitives that generated readers and writers call."""

from collections.abc import Callable
from typing import Final


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned 32-bit varint; return it and the position after it."""
    # Unrolled for the sizes that lengths have: a third of the time of the loop below.
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    second = buffer[position + 1]
    if second < 0x80:
        return first & 0x7F | second << 7, position + 2
    third = buffer[position + 2]
    if third < 0x80:
        return first & 0x7F | (second & 0x7F) << 7 | third << 14, position + 3
    return _read_long_uvarint(buffer, position)


def _read_long_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and value <= 0xFFFFFFFF:
            return value, position
    raise ValueError("a varint of more than 32 bits")


def _made_uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SHORT_UVARINTS: Final = tuple(_made_uvarint(value) for value in range(1 << 10))
"""The varints that nearly every length is, ready-made."""


def uvarint(value: int) -> bytes:
    """Write an unsigned varint."""
    return SHORT_UVARINTS[value] if 0 <= value < len(SHORT_UVARINTS) else _made_uvarint(value)


def read_tags(buffer: memoryview, position: int, count: int) -> tuple[dict[int, bytes], int]:
    """Read `count` tagged fields, none of which is known."""
    unknown: dict[int, bytes] = {}
    previous = -1
    for _ in range(count):
        tag, size, position = read_tag_header(buffer, position, previous)
        unknown[tag] = bytes(buffer[position : position + size])
        position += size
        previous = tag
    return unknown, position


def read_tag_header(buffer: memoryview, position: int, previous: int) -> tuple[int, int, int]:
    """Read the tag and the size of a tagged field; tags must rise. Return the position after."""
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if tag <= previous:
        raise ValueError(f"tag {tag} after tag {previous}")
    if size > len(buffer) - position:
        raise ValueError(f"tag {tag} claims {size} bytes, {len(buffer) - position} are left")
    return tag, size, position


def write_tags(append: Callable[[bytes], None], tags: dict[int, bytes]) -> None:
    """Write tagged fields in the order of their tags."""
    append(uvarint(len(tags)))
    for tag, value in sorted(tags.items()):
        append(uvarint(tag))
        append(uvarint(len(value)))
        append(value)
