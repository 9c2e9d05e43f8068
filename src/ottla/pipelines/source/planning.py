"""The ranges of offsets that tasks read, split if options ask for more tasks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from ottla.model.identifiers import ZERO_UUID, TopicPartition


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """Offsets of one partition, from start_offset to before end_offset: the input of one task."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    topic_id: bytes = ZERO_UUID

    @property
    def name(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.end_offset - self.start_offset

    def __str__(self) -> str:
        return f"offsets {self.start_offset} to {self.end_offset} of {self.name}"


def split(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    records_per_partition_max: int | None = None,
) -> list[OffsetRange]:
    """Leave out empty ranges, and split the others to satisfy the given minimum and maximum.

    With min_partitions, large ranges are cut into more pieces than small ones.
    """
    found = [one for one in ranges if one.size > 0]
    if records_per_partition_max is not None:
        found = [
            piece
            for one in found
            for piece in _pieces(one, -(-one.size // records_per_partition_max))
        ]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    total = sum(one.size for one in found)
    return [
        piece
        for one in found
        for piece in _pieces(one, max(-(-one.size * min_partitions // total), 1))
    ]


def _pieces(one: OffsetRange, count: int) -> Iterator[OffsetRange]:
    count = min(count, one.size)
    ends = [one.start_offset + one.size * number // count for number in range(count + 1)]
    for start_offset, end_offset in pairwise(ends):
        yield OffsetRange(one.topic, one.partition, start_offset, end_offset, one.topic_id)
