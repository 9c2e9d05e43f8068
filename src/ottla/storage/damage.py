"""What the disk has lost of a segment, noted down beside it in a file that only Ottla has.

    00000000000000000042.damage    a table as the checkpoints are, each line with its own CRC:
                                   position, end position, offset, end offset, CRC-32C of these

Only a segment that was gone through and found damaged below the recovery point has one.
"""

import posixpath
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.environment.disk import Disk
from ottla.storage.checkpoints import INT32_MAX, INT64_MAX, read_table, remove_durably, write_table
from ottla.wire.records.crc32c import crc32c

DAMAGE_SUFFIX: Final = ".damage"
_UINT32_MAX: Final = 2**32 - 1


class Damage(NamedTuple):
    """A stretch of the file that should hold batches and does not: never read, never sent."""

    position: int
    end_position: int
    offset: int
    end_offset: int


def damage_path(log_path: str) -> str:
    """Name the file for the damage of the segment whose batches are in this one."""
    return posixpath.splitext(log_path)[0] + DAMAGE_SUFFIX


def read_damage(disk: Disk, path: str) -> tuple[Damage, ...]:
    """Read what was noted; nothing if there is no file, CorruptCheckpointError if it is damaged."""
    found = []
    for line in read_table(disk, path, words_per_line=5):
        if line.number(4, _UINT32_MAX) != _checksum(line.words[:4]):
            raise line.error("has another CRC than it says")
        positions = line.number(0, INT32_MAX), line.number(1, INT32_MAX)
        found.append(Damage(*positions, line.number(2, INT64_MAX), line.number(3, INT64_MAX)))
    return tuple(found)


def write_damage(disk: Disk, path: str, damage: Sequence[Damage]) -> None:
    """Note down all damage of a segment, durably; where there is none there is no file."""
    lines = [[str(number) for number in one] for one in damage]
    if lines:
        write_table(disk, path, [" ".join([*line, str(_checksum(line))]) for line in lines])
    else:
        remove_durably(disk, path)


def _checksum(words: list[str]) -> int:
    return crc32c(" ".join(words).encode())
