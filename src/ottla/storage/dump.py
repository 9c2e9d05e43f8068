"""Prints the content of a partition's files, entry by entry, for troubleshooting.

Nothing is changed and nothing is trusted: at invalid bytes the reading ends with a DumpError that
names their position, after all entries before them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ottla.environment.disk import Disk
from ottla.model.identifiers import Offset
from ottla.storage.indexes.aborted_index import ENTRY as ABORTED_ENTRY
from ottla.storage.indexes.offset_index import OffsetIndex
from ottla.storage.indexes.time_index import TimeIndex
from ottla.storage.producers.producer_snapshot import CorruptSnapshotError, decode_snapshot
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import RecordBatch, batch_at
from ottla.wire.records.record import Record, records_of

Row = Mapping[str, object]
_NAME: Final = re.compile(r"(\d{20})[^/]*(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)")
_SUFFIXES: Final = ".log, .index, .timeindex, .txnindex and .snapshot"


class DumpError(Exception):
    """A file that cannot be dumped, or not to its end."""


def dump(disk: Disk, path: str, *, with_records: bool = False) -> Iterator[Row]:
    """Dump a file by its name; DumpError if it is not a partition's file."""
    name = path.rpartition("/")[2]
    match = _NAME.fullmatch(name)
    if match is None:
        raise DumpError(f"{path} is no file of a partition: known are {_SUFFIXES}")
    base_offset, suffix = int(match[1]), match[2]
    content = disk.map_file(path)
    if suffix == ".log":
        return _segment(content, path, with_records=with_records)
    if suffix == ".index":
        return _offset_index(content, path, Offset(base_offset))
    if suffix == ".timeindex":
        return _time_index(content, path, Offset(base_offset))
    if suffix == ".txnindex":
        return _aborted_index(content, path)
    return _snapshot(content, path, Offset(base_offset))


def _segment(content: memoryview, path: str, *, with_records: bool) -> Iterator[Row]:
    position = 0
    while position < len(content):
        try:
            batch = batch_at(content, position)
            yield _batch_row(batch, position)
            if with_records and batch.has_valid_crc():
                yield from map(_record_row, records_of(batch))
        except ProtocolError as error:
            raise DumpError(f"{path}, byte {position}: {error.detail}") from None
        position += batch.size_bytes


def _batch_row(batch: RecordBatch, position: int) -> Row:
    return {
        "position": position,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.record_count,
        "size": batch.size_bytes,
        "leader_epoch": batch.partition_leader_epoch,
        "max_timestamp": batch.max_timestamp_ms,
        "compression": batch.compression.name.lower(),
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "crc": batch.crc,
        "is_valid": batch.has_valid_crc(),
    }


def _record_row(record: Record) -> Row:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": record.key,
        "value": record.value,
        "headers": record.headers,
    }


def _offset_index(content: memoryview, path: str, base_offset: Offset) -> Iterator[Row]:
    entry = OffsetIndex.ENTRY
    for relative, position in entry.iter_unpack(_whole(content, entry.size)):
        if relative == position == 0:
            return  # Kafka makes room for entries before it has them
        yield {"offset": base_offset + relative, "position": position}
    _check_end(content, entry.size, path)


def _time_index(content: memoryview, path: str, base_offset: Offset) -> Iterator[Row]:
    entry = TimeIndex.ENTRY
    for timestamp_ms, relative in entry.iter_unpack(_whole(content, entry.size)):
        if timestamp_ms == relative == 0:
            return  # as above
        yield {"timestamp": timestamp_ms, "offset": base_offset + relative}
    _check_end(content, entry.size, path)


def _aborted_index(content: memoryview, path: str) -> Iterator[Row]:
    entry = ABORTED_ENTRY
    names = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
    for row in entry.iter_unpack(_whole(content, entry.size)):
        yield dict(zip(names, row, strict=True))
    _check_end(content, entry.size, path)


def _snapshot(content: memoryview, path: str, offset: Offset) -> Iterator[Row]:
    try:
        entries = decode_snapshot(content, offset)
    except CorruptSnapshotError as error:
        raise DumpError(f"{path}: {error}") from None
    for entry in entries:
        yield entry._asdict()


def _whole(content: memoryview, entry_bytes: int) -> memoryview:
    """Skip an incomplete entry."""
    return content[: len(content) // entry_bytes * entry_bytes]


def _check_end(content: memoryview, entry_bytes: int, path: str) -> None:
    rest = len(content) % entry_bytes
    if rest:
        raise DumpError(f"{path}, byte {len(content) - rest}: an entry of {rest} bytes")
