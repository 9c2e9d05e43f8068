"""How much to fetch: a broker is told where a range begins, and cannot be told where it ends."""

from typing import Final

_RECORD_BYTES: Final = 1_000
"""What a record is taken for until one was seen."""
_LEAST_BYTES: Final = 64 << 10
_ROOM: Final = 1.1


class RecordSizes:
    """How many bytes an offset took lately, by topic."""

    def __init__(self) -> None:
        self._size_by_topic: dict[str, float] = {}

    def learn(self, topic: str, size_bytes: int, offset_count: int) -> None:
        """Remember what came."""
        self._size_by_topic[topic] = size_bytes / max(offset_count, 1)

    def bytes_for(self, topic: str, offset_count: int, bytes_max: int) -> int:
        """Return how much to fetch for so many offsets, with some room."""
        size = self._size_by_topic.get(topic, _RECORD_BYTES)
        return int(min(_ROOM * size * offset_count + _LEAST_BYTES, bytes_max))
