"""The variable-length primitives that generated readers and writers call."""

from collections.abc import Callable
from typing import Final

UVARINT_BYTES_MAX: Final = 5


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned 32-bit varint; return it and the position after it."""
    value = 0
    for shift in range(0, 7 * UVARINT_BYTES_MAX, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise ValueError("a varint of more than 32 bits")


def uvarint(value: int) -> bytes:
    """Write an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SHORT_UVARINTS: Final = tuple(uvarint(value) for value in range(1 << 10))
"""The varints that nearly every length is, ready-made."""


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
