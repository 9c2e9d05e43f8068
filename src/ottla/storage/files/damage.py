"""The damaged ranges of a segment, recorded beside it in a file that only Ottla has.

    00000000000000000042.damage    a table as the checkpoints are, each line with its own CRC:
                                   position, end position, offset, end offset, kind, CRC-32C of
                                   these

A segment has this file only after a scan found damage below the recovery point.
"""

import posixpath
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.environment.disk import Disk
from ottla.model.identifiers import Offset
from ottla.storage.files.checkpoints import (
    INT32_MAX,
    INT64_MAX,
    read_table,
    remove_durably,
    write_table,
)
from ottla.wire.records.crc32c import crc32c

DAMAGE_SUFFIX: Final = ".damage"
_UINT32_MAX: Final = 2**32 - 1


class DamageKind(IntEnum):
    """How damage was found, which determines the state that must be rebuilt after a repair."""

    IN_USE = 0
    """While the log was in use: its indexes and its producers were known from the intact log."""
    OLD_FORMAT = 1
    """No damage, but messages of before Kafka 0.11: not served, and no other replica has more."""
    AT_OPENING = 2
    """During a rebuild of indexes, epochs or producer state, which lack the lost batches."""


class Damage(NamedTuple):
    """A stretch of the file that should hold batches and does not: never read, never sent."""

    position: int
    end_position: int
    offset: Offset
    end_offset: Offset
    kind: DamageKind = DamageKind.IN_USE

    def is_lost_from(self, start_offset: Offset) -> bool:
        """Return whether another replica may have records that are lost here from an offset on."""
        return self.kind is not DamageKind.OLD_FORMAT and self.end_offset > start_offset


def replaced_kind(damage: Sequence[Damage], old: DamageKind, new: DamageKind) -> tuple[Damage, ...]:
    """Return the same damage, with one kind replaced by another."""
    return tuple(one._replace(kind=new) if one.kind is old else one for one in damage)


def damage_path(log_path: str) -> str:
    """Return the path of a segment's damage file."""
    return posixpath.splitext(log_path)[0] + DAMAGE_SUFFIX


def read_damage(disk: Disk, path: str) -> tuple[Damage, ...]:
    """Read recorded damage; empty without a file, CorruptCheckpointError if it is invalid."""
    found = []
    for line in read_table(disk, path, words_per_line=6):
        if line.number(5, _UINT32_MAX) != _checksum(line.words[:5]):
            raise line.error("has another CRC than it says")
        positions = line.number(0, INT32_MAX), line.number(1, INT32_MAX)
        offsets = Offset(line.number(2, INT64_MAX)), Offset(line.number(3, INT64_MAX))
        found.append(Damage(*positions, *offsets, DamageKind(line.number(4, max(DamageKind)))))
    return tuple(found)


def write_damage(disk: Disk, path: str, damage: Sequence[Damage]) -> None:
    """Record all damage of a segment, durably; where there is none there is no file."""
    lines = [[str(int(number)) for number in one] for one in damage]
    if lines:
        write_table(disk, path, [" ".join([*line, str(_checksum(line))]) for line in lines])
    else:
        remove_durably(disk, path)


def _checksum(words: list[str]) -> int:
    return crc32c(" ".join(words).encode())
