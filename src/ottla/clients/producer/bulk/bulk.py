"""Bulk sends: records are sorted by partition and encoded in compiled code, batch by batch.

The result is a lazy sequence of whole batches: the caller takes the next batch when there is room
for it. No batch is larger than batch.size, except for a single larger record.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.clients.producer.bulk._bulk_python import NO_PARTITION, Columns, Groups, Serialize
from ottla.wire.records.loops import RecordAccumulator

if TYPE_CHECKING:
    from ottla.clients.producer.bulk._bulk_python import (
        group_arrow_rows,
        group_rows,
        picked,
        read_columns,
    )
else:
    try:
        from ottla.clients.producer.bulk._bulk import (
            group_arrow_rows,
            group_rows,
            picked,
            read_columns,
        )
    except ImportError:
        from ottla.clients.producer.bulk._bulk_python import (
            group_arrow_rows,
            group_rows,
            picked,
            read_columns,
        )

ROWS_MAX: Final = 50_000
"""The number of records that are read from an iterable and then sorted and encoded together."""
READ_BYTES_MAX: Final = 8 << 20
"""The corresponding limit in bytes."""


class Piece(NamedTuple):
    """Encoded records of one batch, with their row numbers. Partition None means any."""

    partition: int | None
    records: RecordAccumulator
    first_row: int
    last_row: int


@dataclass(frozen=True, slots=True)
class Target:
    """The parameters of a topic's batches."""

    partition_count: int
    batch_bytes_max: int
    now_ms: Callable[[], int]
    choose: Callable[[bytes | None], int | None] | None = None
    """Returns the partition of a key, None for any; unset for Kafka's default partitioner."""


class _Rows(Protocol):
    """Rows of a chunk, all or in a given order; `encode` starts at a row."""

    def encode(self, start: int, size_bytes_max: int) -> RecordAccumulator: ...


def pieces_of_records(
    records: Iterable[Any],
    target: Target,
    serialize_key: Serialize | None,
    serialize_value: Serialize | None,
) -> Iterator[Piece]:
    """Encode values, (key, value) tuples and mappings; see read_columns."""
    iterator = iter(records)
    first_row = 0
    while True:
        columns = read_columns(
            iterator, ROWS_MAX, READ_BYTES_MAX, serialize_key, serialize_value, first_row
        )
        count = len(columns.values)
        if not count:
            return
        yield from _pieces_of_columns(columns, target, first_row)
        first_row += count


def pieces_of_arrow(source: Any, target: Target) -> Iterator[Piece]:
    """Encode a table, or another object with Arrow's stream interface.

    Columns: value (binary or string), and if present key, headers, timestamp and partition, as
    `ottla.wire.records.arrow` writes them. The key determines the partition of a row without one.
    """
    from ottla.wire.records import arrow  # noqa: PLC0415 - pyarrow is loaded only if it is used

    first_row = 0
    for batch in arrow.stream(source):
        given, content = _without_partitions(batch)
        count = content.num_rows
        if not count:
            continue
        rows = arrow.rows_of(content, target.now_ms())
        has_keys = "key" in content.schema.names
        keys = arrow.strings("key", content.column("key")) if has_keys else None
        if target.choose is None:
            groups = group_arrow_rows(keys, given, count, target.partition_count, first_row)
        else:
            own = content.column("key").to_pylist() if has_keys else repeat(None)
            chosen = _chosen(own, given or [NO_PARTITION] * count, target.choose)
            groups = group_rows(None, chosen, count, target.partition_count, first_row)
        for partition, order in _parts(groups, target.partition_count):
            part = _ArrowPart(rows, order)
            yield from _pieces(part, order, partition, first_row, target.batch_bytes_max)
        first_row += count


def _pieces_of_columns(columns: Columns, target: Target, first_row: int) -> Iterator[Piece]:
    keys: Any = columns.keys
    partitions = columns.partitions
    if target.choose is not None:
        given = partitions or [NO_PARTITION] * len(columns.values)
        partitions = _chosen(keys or repeat(None), given, target.choose)
        keys = None
    groups = group_rows(keys, partitions, len(columns.values), target.partition_count, first_row)
    for partition, order in _parts(groups, target.partition_count):
        part = _list_part(columns, order, target.now_ms())
        yield from _pieces(part, order, partition, first_row, target.batch_bytes_max)


def _parts(groups: Groups, partition_count: int) -> Iterator[tuple[int | None, memoryview]]:
    start = 0
    for partition, end in enumerate(groups.ends):
        if end > start:
            number = partition if partition < partition_count else None
            yield number, groups.order[start:end]
        start = end


def _pieces(
    part: _Rows, order: memoryview, partition: int | None, first_row: int, batch_bytes_max: int
) -> Iterator[Piece]:
    start = 0
    while start < len(order):
        records = part.encode(start, batch_bytes_max)
        end = start + records.record_count
        yield Piece(partition, records, first_row + order[start], first_row + order[end - 1])
        start = end


@dataclass(frozen=True, slots=True)
class _ArrowPart:
    rows: Any
    order: memoryview

    def encode(self, start: int, size_bytes_max: int) -> RecordAccumulator:
        return RecordAccumulator.of_encoded(*self.rows.encode(start, size_bytes_max, self.order))


@dataclass(frozen=True, slots=True)
class _ListPart:
    values: list[Any]
    keys: list[Any] | None
    headers: list[Any] | None
    timestamp_ms: int | list[int]

    def encode(self, start: int, size_bytes_max: int) -> RecordAccumulator:
        records = RecordAccumulator()
        records.extend(
            self.timestamp_ms,
            self.values,
            self.keys,
            self.headers,
            start=start,
            size_bytes_max=size_bytes_max,
        )
        return records


def _list_part(columns: Columns, order: memoryview, now_ms: int) -> _ListPart:
    timestamp_ms: int | list[int] = now_ms
    if columns.timestamps_ms is not None:
        given = picked(columns.timestamps_ms, order)
        timestamp_ms = [now_ms if time is None else time for time in given]
    if len(order) == len(columns.values):  # all rows, in their original order
        return _ListPart(columns.values, columns.keys, columns.headers, timestamp_ms)
    return _ListPart(
        picked(columns.values, order),
        None if columns.keys is None else picked(columns.keys, order),
        None if columns.headers is None else picked(columns.headers, order),
        timestamp_ms,
    )


def _chosen(
    keys: Iterable[Any],
    given: Iterable[int],
    choose: Callable[[bytes | None], int | None],
) -> list[int]:
    chosen = []
    for key, number in zip(keys, given, strict=False):  # an absent column is endless
        own = choose(key) if number == NO_PARTITION else number
        chosen.append(NO_PARTITION if own is None else own)
    return chosen


def _without_partitions(batch: Any) -> tuple[memoryview | None, Any]:
    """Split the partition column off an Arrow batch; -1 stands for null."""
    index = batch.schema.get_field_index("partition")
    if index < 0:
        return None, batch
    column = batch.column(index)
    try:
        numbers = column.cast("int32").fill_null(NO_PARTITION)
    except ValueError as error:
        raise ValueError(f"column partition is {column.type}: expected whole numbers") from error
    content = batch.drop_columns(["partition"])
    if not len(numbers):
        return None, content
    view = memoryview(numbers.buffers()[1]).cast("B").cast("i")
    return view[numbers.offset : numbers.offset + len(numbers)], content
