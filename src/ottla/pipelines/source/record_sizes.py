"""Estimates fetch sizes: a fetch request has a start offset and no end offset."""

from typing import Final

_RECORD_BYTES: Final = 1_000
"""The assumed size of a record before the first fetch."""
_LEAST_BYTES: Final = 64 << 10
_ROOM: Final = 1.1


class RecordSizes:
    """The bytes per offset in the last fetch of each topic."""

    def __init__(self) -> None:
        self._size_by_topic: dict[str, float] = {}

    def learn(self, topic: str, size_bytes: int, offset_count: int) -> None:
        """Remember the average size of the fetched offsets."""
        self._size_by_topic[topic] = size_bytes / max(offset_count, 1)

    def bytes_for(self, topic: str, offset_count: int, bytes_max: int) -> int:
        """Return the bytes to fetch for a number of offsets, with some margin."""
        size = self._size_by_topic.get(topic, _RECORD_BYTES)
        return int(min(_ROOM * size * offset_count + _LEAST_BYTES, bytes_max))
