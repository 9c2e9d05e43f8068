"""The offsets of keys during compaction: compiled where possible, else in plain Python."""

from typing import TYPE_CHECKING, Final

from ottla.storage.compaction._compaction_python import ENTRY_BYTES

if TYPE_CHECKING:
    from ottla.storage.compaction._compaction_python import OffsetMap, shift_timestamps
else:
    try:
        from ottla.storage.compaction._compaction import OffsetMap, shift_timestamps
    except ImportError:
        from ottla.storage.compaction._compaction_python import OffsetMap, shift_timestamps

__all__ = ["DEDUPE_BUFFER_BYTES", "OffsetMap", "offset_map", "shift_timestamps"]

DEDUPE_BUFFER_BYTES: Final = 128 << 20
"""Kafka's `log.cleaner.dedupe.buffer.size`: how large the map of one compaction may become."""
LOAD_FACTOR: Final = 0.9
"""How full it may become; beyond that most of the time goes into looking for a place."""

_SLOTS_MIN: Final = 2
_SLOTS_MAX: Final = 2**32 - 1


def offset_map(memory_bytes: int, offset_count: int) -> OffsetMap:
    """Create a map of at most this size, and no larger than this number of offsets needs."""
    needed = int(offset_count / LOAD_FACTOR) + _SLOTS_MIN
    slots = max(min(memory_bytes // ENTRY_BYTES, needed, _SLOTS_MAX), _SLOTS_MIN)
    return OffsetMap(max(int(slots * LOAD_FACTOR), 1), slots)
