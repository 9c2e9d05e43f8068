"""Bulk encoding in plain Python: the fallback of _bulk.pyx."""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from ottla.clients.records.partitioner import partition_for_key
from ottla.wire.records._arrow_rows_python import BUFFER_WRONG, StringBuffers, strings
from ottla.wire.records.batch import Buffer

NO_PARTITION: Final = -1
"""The partition of a row with neither a key nor a partition."""
FIELDS: Final = ("value", "key", "headers", "timestamp", "partition")
NOT_A_PAIR = "row {}: a tuple of {} items; expected (key, value)"
NOT_A_FIELD = "row {}: {!r} is no field of a record; they are " + ", ".join(FIELDS)
NOT_BYTES = "row {}: a {} is {}, and no serializer was given: expected bytes, str or None"
NO_SUCH_PARTITION = "row {}: there is no partition {}, the topic has {}"

Headers = Sequence[tuple[str, Buffer | None]]
Serialize = Callable[[Any, Headers], Buffer | None]


class Columns(NamedTuple):
    """Records by column; a column without any value is None."""

    values: list[Buffer | None]
    keys: list[Buffer | None] | None
    headers: list[Headers] | None
    timestamps_ms: list[int | None] | None
    partitions: list[int] | None


class Groups(NamedTuple):
    """Rows sorted by partition, in their original order within each.

    The rows of partition p are order[ends[p - 1] : ends[p]]; the rows after the last end may go to
    any partition.
    """

    order: memoryview
    ends: list[int]


def read_columns(
    records: Iterator[Any],
    rows_max: int,
    size_bytes_max: int,
    serialize_key: Serialize | None,
    serialize_value: Serialize | None,
    first_row: int,
) -> Columns:
    """Read records up to a limit of rows and bytes; empty at the end.

    A record is a value, a tuple of key and value, or a mapping of FIELDS. ValueError or TypeError
    names the row that is none of these.
    """
    rows: list[tuple[Any, Any, Headers, int | None, int]] = []
    size = 0
    for record in records:
        row = first_row + len(rows)
        value, key, headers, timestamp_ms, partition = _fields(record, row)
        value = _serialized(value, headers, serialize_value, "value", row)
        key = _serialized(key, headers, serialize_key, "key", row)
        rows.append((value, key, headers, timestamp_ms, partition))
        size += len(value or b"") + len(key or b"")
        if len(rows) >= rows_max or size >= size_bytes_max:
            break
    return _columns(rows)


def group_rows(
    keys: Sequence[bytes | None] | None,
    partitions: Sequence[int] | None,
    row_count: int,
    partition_count: int,
    first_row: int,
) -> Groups:
    """Sort rows by their partition, or by the partition of their key."""
    numbers = [NO_PARTITION] * row_count if partitions is None else list(partitions)
    for row, number in enumerate(numbers):
        if number == NO_PARTITION:
            key = None if keys is None else keys[row]
            if key is None:
                numbers[row] = partition_count
            else:
                numbers[row] = partition_for_key(bytes(key), partition_count)
        elif not 0 <= number < partition_count:
            message = NO_SUCH_PARTITION.format(first_row + row, number, partition_count)
            raise ValueError(message)
    return _grouped(numbers, partition_count)


def group_arrow_rows(
    keys: StringBuffers | None,
    partitions: memoryview | None,
    row_count: int,
    partition_count: int,
    first_row: int,
) -> Groups:
    """Sort rows like `group`, with keys in an Arrow column and 32-bit partitions."""
    if partitions is not None and len(partitions) < row_count:
        raise ValueError(BUFFER_WRONG)
    cells = None if keys is None else _cells(keys, row_count)
    numbers = None if partitions is None else partitions.tolist()[:row_count]
    return group_rows(cells, numbers, row_count, partition_count, first_row)


def picked(items: Sequence[Any], order: memoryview) -> list[Any]:
    """Return the items in this order."""
    return [items[row] for row in order.tolist()]


def _fields(record: Any, row: int) -> tuple[Any, Any, Headers, int | None, int]:
    if type(record) is tuple:
        if len(record) != 2:
            raise ValueError(NOT_A_PAIR.format(row, len(record)))
        return record[1], record[0], (), None, NO_PARTITION
    if not isinstance(record, Mapping):
        return record, None, (), None, NO_PARTITION
    for name in record:
        if name not in FIELDS:
            raise ValueError(NOT_A_FIELD.format(row, name))
    partition = record.get("partition")
    return (
        record.get("value"),
        record.get("key"),
        record.get("headers") or (),
        record.get("timestamp"),
        NO_PARTITION if partition is None else partition,
    )


def _serialized(
    cell: Any, headers: Headers, serialize: Serialize | None, what: str, row: int
) -> Buffer | None:
    if serialize is not None:
        cell = serialize(cell, headers)
    if isinstance(cell, str):
        return cell.encode()
    if cell is None or isinstance(cell, bytes):
        return cell
    if not isinstance(cell, bytearray | memoryview):
        raise TypeError(NOT_BYTES.format(row, what, type(cell).__name__))
    return bytes(cell)


def _columns(rows: list[tuple[Any, Any, Headers, int | None, int]]) -> Columns:
    return Columns(
        [row[0] for row in rows],
        [row[1] for row in rows] if any(row[1] is not None for row in rows) else None,
        [row[2] for row in rows] if any(row[2] for row in rows) else None,
        [row[3] for row in rows] if any(row[3] is not None for row in rows) else None,
        [row[4] for row in rows] if any(row[4] != NO_PARTITION for row in rows) else None,
    )


def _grouped(numbers: list[int], partition_count: int) -> Groups:
    counts = [0] * (partition_count + 1)
    for number in numbers:
        counts[number] += 1
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    return Groups(memoryview(array("i", order)), list(accumulate(counts)))


def _cells(column: StringBuffers, count: int) -> list[bytes | None]:
    return [None if cell is None else bytes(cell) for cell in strings(column, count)]
