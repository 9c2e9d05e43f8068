"""The memory limit of a message while it is read, and the cost of array items against it."""

import struct
from typing import Final

from ottla.wire.generated import LAYOUT_BY_KIND
from ottla.wire.schema import Field

BUDGET_FLOOR_BYTES: Final = 1 << 20
BUDGET_MULTIPLE: Final = 16
"""A message may use a megabyte of memory, plus sixteen times the size of its frame."""
TAG_BYTES: Final = 192
_MEMORY_BY_KIND: Final = {"string": 64, "bytes": 64, "records": 208, "uuid": 64, "bool": 0}
_NUMBER_BYTES: Final = 32
_PLACE_BYTES: Final = 8
_LIST_BYTES: Final = 88
_OBJECT_BYTES: Final = 48


def is_number(field: Field) -> bool:
    """Return whether an array of these is read, or written, in one call."""
    return field.kind in LAYOUT_BY_KIND and field.kind != "uuid"


def item_bytes(field: Field, version: int) -> int:
    """Return the cost of an array's item: its memory, and its slot in the list.

    The cost of numbers never exceeds the budget that their bytes on the wire add: only another
    limit refuses them.
    """
    if is_number(field):
        wire_bytes = struct.calcsize(">" + LAYOUT_BY_KIND[field.kind])
        return min(_NUMBER_BYTES + _PLACE_BYTES, BUDGET_MULTIPLE * wire_bytes)
    return _memory_bytes(field, version) + 2 * _PLACE_BYTES


def _memory_bytes(field: Field, version: int) -> int:
    """Return the approximate memory of one item, without the contents of its arrays."""
    if field.struct is None:
        return _MEMORY_BY_KIND.get(field.kind, _NUMBER_BYTES)
    return _OBJECT_BYTES + sum(8 + _field_bytes(f, version) for f in field.struct.fields)


def _field_bytes(field: Field, version: int) -> int:
    if field.is_array:
        return _LIST_BYTES
    if not field.is_present(version) or field.is_tagged(version):
        return 0
    return _memory_bytes(field, version)
