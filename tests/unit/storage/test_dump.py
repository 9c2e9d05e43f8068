"""Files of a partition, printed entry by entry."""

from collections.abc import Iterable
from contextlib import closing

import pytest

from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.dump import DumpError, dump
from ottla.storage.indexes.offset_index import OffsetIndex
from ottla.storage.indexes.time_index import TimeIndex
from ottla.storage.producers.producer_snapshot import ProducerEntry, encode_snapshot
from ottla.wire.records.builder import build_batch
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.record import Record, RecordHeader

NAME = "/00000000000000000100"
ENTRIES_MAX = 100


def disk_with(path: str, content: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    with closing(disk.create_file(path)) as file:
        file.write_at(0, content)
    return disk


def told(rows: Iterable[object], names: Iterable[str]) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in names) for row in rows]  # type: ignore[index]


def segment() -> bytes:
    records = [
        Record(offset, 5, b"k", b"v%d" % offset, (RecordHeader("h", None),))
        for offset in (100, 101)
    ]
    compressed = build_batch(records, compression=Compression.ZSTD)
    return bytes(compressed + build_batch([Record(102, 6, None, b"last")]))


def test_a_segment_is_told_batch_by_batch() -> None:
    rows = list(dump(disk_with(f"{NAME}.log", segment()), f"{NAME}.log"))
    names = ("base_offset", "last_offset", "count", "compression", "is_valid")
    assert told(rows, names) == [(100, 101, 2, "zstd", True), (102, 102, 1, "none", True)]
    assert rows[1]["position"] == rows[0]["size"]


def test_records_follow_their_batch() -> None:
    disk = disk_with(f"{NAME}.log", segment())
    rows = list(dump(disk, f"{NAME}.log", with_records=True))
    assert [("offset" in row, row.get("value")) for row in rows] == [
        (False, None),
        (True, b"v100"),
        (True, b"v101"),
        (False, None),
        (True, b"last"),
    ]


def test_a_flipped_bit_is_told_and_what_follows_it_too() -> None:
    content = bytearray(segment())
    content[70] ^= 1
    disk = disk_with(f"{NAME}.log", bytes(content))
    rows = list(dump(disk, f"{NAME}.log", with_records=True))
    assert [row.get("is_valid") for row in rows] == [False, True, None]


def test_a_torn_segment_is_told_up_to_where_it_is_torn() -> None:
    content = segment()[:-1]
    rows = dump(disk_with(f"{NAME}.log", content), f"{NAME}.log")
    assert next(rows)["base_offset"] == 100
    with pytest.raises(DumpError, match="byte"):
        next(rows)


def test_indexes_are_told_with_whole_offsets() -> None:
    disk = SimulatedDisk()
    offsets = OffsetIndex(disk, f"{NAME}.index", 100, ENTRIES_MAX)
    offsets.append(107, 4096)
    offsets.persist()
    times = TimeIndex(disk, f"{NAME}.timeindex", 100, ENTRIES_MAX)
    times.append(9000, 107)
    times.persist()
    assert list(dump(disk, f"{NAME}.index")) == [{"offset": 107, "position": 4096}]
    assert list(dump(disk, f"{NAME}.timeindex")) == [{"timestamp": 9000, "offset": 107}]


def test_room_that_kafka_has_made_is_not_told() -> None:
    assert list(dump(disk_with(f"{NAME}.index", bytes(800)), f"{NAME}.index")) == []


def test_half_an_entry_is_named() -> None:
    entry = OffsetIndex.ENTRY.pack(7, 4096)
    rows = dump(disk_with(f"{NAME}.index", entry + entry[:3]), f"{NAME}.index")
    assert next(rows) == {"offset": 107, "position": 4096}
    with pytest.raises(DumpError, match="byte 8: an entry of 3 bytes"):
        next(rows)


def test_a_snapshot_is_told_or_refused_as_a_whole() -> None:
    entry = ProducerEntry(7, 0, 5, 90, 1, 1000, -1, -1)
    content = encode_snapshot([entry])
    disk = disk_with(f"{NAME}.snapshot", content)
    assert list(dump(disk, f"{NAME}.snapshot")) == [entry._asdict()]
    with pytest.raises(DumpError, match="CRC"):
        list(dump(disk_with(f"{NAME}.snapshot", content[:-1] + b"x"), f"{NAME}.snapshot"))


def test_another_file_is_refused() -> None:
    with pytest.raises(DumpError, match="no file of a partition"):
        dump(disk_with("/notes.txt", b""), "/notes.txt")
