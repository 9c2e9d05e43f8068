"""The parts of topics that a query reads: filters of partitions and offsets, and task ranges."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from ottla.clients.tables.range_reader import OffsetRange
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.settings import INT64_MAX


@dataclass(frozen=True)
class TaskRange(OffsetRange, InputPartition):
    """The input of one task."""


PartitionFilter = Callable[[TopicPartition], bool]
"""Whether any offset of a partition can pass."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The partitions, and the range of offsets, that pass the filters."""

    partition_filters: tuple[PartitionFilter, ...] = ()
    start_offset: int = 0
    end_offset: int = INT64_MAX

    def has(self, name: TopicPartition) -> bool:
        """Whether any offset of a partition can pass the filters."""
        return self.start_offset < self.end_offset and all(
            fits(name) for fits in self.partition_filters
        )

    def within(self, start_offset: int, end_offset: int) -> tuple[int, int]:
        """Return the intersection of a range with the wanted offsets."""
        return max(start_offset, self.start_offset), min(end_offset, self.end_offset)
