"""The scan of a segment's batches: compiled code and fallback agree."""

from struct import Struct
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.model.settings.topic_config import TopicConfig
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.checkpoints import INT64_MAX
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.segments import _batch_scan_python
from ottla.storage.segments.segment import Segment
from ottla.wire.records.batch import RecordBatch, batches
from ottla.wire.records.control import ControlType
from tests.examples import examples
from tests.log_building import DIRECTORY, NOW_MS, batch, marker, stamped

try:
    from ottla.storage.segments import _batch_scan
except ImportError:
    _batch_scan = _batch_scan_python
BOTH = [_batch_scan, _batch_scan_python]
both = pytest.mark.parametrize("module", BOTH)

BASE_OFFSET = 1000
INTERVAL_BYTES = 300
INT64 = Struct(">q")
INT32 = Struct(">i")


def block_of(*parts: memoryview) -> memoryview:
    return memoryview(bytearray(b"".join(parts)))


def in_a_row(count: int, *, epoch: int = 0, **shape: int) -> list[memoryview]:
    return [stamped(batch(**shape), BASE_OFFSET + number, epoch) for number in range(count)]


def scanned(module: ModuleType, block: memoryview, at: int = 0, epoch: int = 0) -> list[object]:
    """Return the results of scanning one block."""
    scan = module.BatchScan(BASE_OFFSET, INTERVAL_BYTES, INT64_MAX)
    scan.leader_epoch = epoch
    scan.go_on(block, at)
    return [
        scan.position,
        scan.end_offset,
        scan.greatest_ms,
        scan.greatest_offset,
        scan.unindexed_bytes,
        bytes(scan.offset_entries),
        bytes(scan.time_entries),
    ]


def stop_of(module: ModuleType, parts: list[memoryview]) -> int:
    """Return the number of batches that a scan passes."""
    position = scanned(module, block_of(*parts))[0]
    ends = [sum(map(len, parts[:count])) for count in range(len(parts) + 1)]
    return ends.index(position)


@both
def test_it_goes_over_batches_in_a_row(module: ModuleType) -> None:
    assert stop_of(module, in_a_row(20)) == 20


@both
def test_it_stops_before_a_batch_that_is_out_of_the_ordinary(module: ModuleType) -> None:
    parts = in_a_row(6)
    for number, (at, field) in {
        "base offset": (0, INT64.pack(BASE_OFFSET + 4)),
        "length": (8, INT32.pack(-1)),
        "leader epoch": (12, INT32.pack(1)),
        "magic": (16, b"\x01"),
        "a byte under the checksum": (70, b"\xff"),
    }.items():
        wrong = [memoryview(bytearray(part)) for part in parts]
        wrong[3][at : at + len(field)] = field
        assert stop_of(module, wrong) == 3, number
    assert stop_of(module, [*parts[:3], parts[4]]) == 3
    assert scanned(module, block_of(*parts)[:-1])[1] == BASE_OFFSET + 5


@both
@pytest.mark.parametrize("field", [(23, INT32.pack(-1)), (57, INT32.pack(-1)), (57, INT32.pack(9))])
def test_a_header_that_cannot_be_right_is_no_batch(
    module: ModuleType, field: tuple[int, bytes]
) -> None:
    raw = stamped(batch(), BASE_OFFSET)
    raw[field[0] : field[0] + 4] = field[1]
    checksum = _batch_scan_python.crc32c(raw[21:])
    raw[17:21] = checksum.to_bytes(4, "big")
    assert stop_of(module, [raw]) == 0
    assert module.producers_batches(raw, 0) == (0, [])


@both
def test_no_batch_reaches_beyond_the_limit(module: ModuleType) -> None:
    block = block_of(*in_a_row(6))
    scan = module.BatchScan(BASE_OFFSET, INTERVAL_BYTES, BASE_OFFSET + 4)
    scan.leader_epoch = 0
    scan.go_on(block, 0)
    assert scan.end_offset == BASE_OFFSET + 4
    far = module.BatchScan(0, INTERVAL_BYTES, INT64_MAX)
    far.end_offset, far.leader_epoch = 2**31, 0
    far.go_on(stamped(batch(), 2**31), 0)
    assert far.position == 0


@both
def test_its_entries_are_those_of_a_segment_that_is_written(module: ModuleType) -> None:
    times = [5, 9, 3, 30, 30, 31, 8, 50, 51, 52, 10, 11]
    parts = [
        stamped(batch(3, NOW_MS + time), BASE_OFFSET + 3 * number)
        for number, time in enumerate(times)
    ]
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    config = TopicConfig(index_interval_bytes=100)
    segment = Segment.create(OpenFiles(disk), DIRECTORY, BASE_OFFSET, config, NOW_MS)
    for part in parts:
        segment.append(part, [RecordBatch(part)])
    scan = module.BatchScan(BASE_OFFSET, 100, INT64_MAX)
    scan.leader_epoch = 0
    scan.go_on(block_of(*parts), 0)
    again = Segment(OpenFiles(disk), DIRECTORY, BASE_OFFSET, config, NOW_MS)
    again.indexes.drop()
    again.take_indexes(scan)
    assert [*again.offset_index.entries()] == [*segment.offset_index.entries()]
    assert [*again.time_index.entries()] == [*segment.time_index.entries()]
    assert len([*again.time_index.entries()]) > 3
    assert again.greatest_timestamp == segment.greatest_timestamp


@both
def test_full_indexes_leave_the_same_entries_out(module: ModuleType) -> None:
    config = TopicConfig(index_interval_bytes=1, segment_index_bytes=48)
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    parts = [stamped(batch(1, NOW_MS + n), n) for n in range(20)]
    segment = Segment.create(OpenFiles(disk), DIRECTORY, 0, config, NOW_MS)
    again = Segment(OpenFiles(disk), DIRECTORY, 0, config, NOW_MS)
    again.indexes.drop()
    for part in parts:
        segment.append(part, [RecordBatch(part)])
    scan = module.BatchScan(0, 1, INT64_MAX)
    scan.leader_epoch = 0
    scan.go_on(block_of(*parts), 0)
    again.take_indexes(scan)
    for index, other in zip(again.indexes[:2], segment.indexes[:2], strict=True):
        assert [*index.entries()] == [*other.entries()]
        assert index.is_full


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["plain", "plain", "transactional", "commit", "abort", "none"]),
        st.integers(1, 3),
        st.integers(0, 2),
    ),
    max_size=40,
)


def history(steps: list[tuple[str, int, int]]) -> memoryview:
    """Write the batches of producers, with epochs that never decrease."""
    parts: list[memoryview] = []
    epoch_by_producer: dict[int, int] = {}
    for kind, producer_id, least_epoch in steps:
        offset = len(parts)
        epoch = max(epoch_by_producer.get(producer_id, 0), least_epoch)
        epoch_by_producer[producer_id] = epoch
        if kind in {"commit", "abort"}:
            control = ControlType.COMMIT if kind == "commit" else ControlType.ABORT
            parts.append(stamped(marker(control, producer_id, epoch), offset))
        elif kind == "none":
            parts.append(stamped(batch(), offset))
        else:
            is_transactional = kind == "transactional"
            parts.append(
                stamped(
                    batch(
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        base_sequence=offset,
                        is_transactional=is_transactional,
                    ),
                    offset,
                )
            )
    return block_of(*parts)


def state_after(found: list[RecordBatch]) -> tuple[object, ...]:
    states = ProducerStates(SimulatedDisk(), DIRECTORY)
    completed = [states.apply(one) for one in found if one.has_producer_id]
    known = {key: one.batches for key, one in states._producers.items()}
    ended = [one for one in completed if one is not None]
    return states.producers(), known, ended, states.first_unstable_offset


@settings(deadline=None, max_examples=examples(200))
@given(steps=STEPS)
def test_omitted_records_change_no_producer_state(
    steps: list[tuple[str, int, int]],
) -> None:
    block = history(steps)
    everything = list(batches(block))
    expected = state_after(everything)
    for module in BOTH:
        end, found = module.producers_batches(block, 0)
        assert end == len(block)
        starts = {id(one): at for one, at in zip(everything, _starts(everything), strict=True)}
        chosen = [one for one in everything if starts[id(one)] in found]
        assert len(chosen) == len(found)
        assert state_after(chosen) == expected


def _starts(found: list[RecordBatch]) -> list[int]:
    return [sum(one.size_bytes for one in found[:count]) for count in range(len(found))]


@both
def test_of_a_busy_producer_only_the_last_batches_are_left(module: ModuleType) -> None:
    block = block_of(*in_a_row(100, producer_id=7))
    assert len(module.producers_batches(block, 0)[1]) == 5


@pytest.mark.usefixtures("needs_compiled_loops")
@settings(deadline=None, max_examples=examples(200))
@given(
    epochs=st.lists(st.sampled_from([0, 0, 0, 0, -1, 1]), max_size=12),
    flips=st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 255)), max_size=2),
    cut=st.integers(0, 2000),
    at=st.sampled_from([0, 0, 0, 75]),
)
def test_both_find_the_same_in_any_bytes(
    epochs: list[int], flips: list[tuple[int, int]], cut: int, at: int
) -> None:
    parts = [stamped(batch(2), BASE_OFFSET + 2 * n, epoch) for n, epoch in enumerate(epochs)]
    block = block_of(*parts, memoryview(b"\0" * 80))
    for place, bits in flips:
        block[place % len(block)] ^= bits
    block = block[: len(block) - cut % 60]
    assert scanned(_batch_scan, block, at) == scanned(_batch_scan_python, block, at)
    assert _batch_scan.producers_batches(block, at) == _batch_scan_python.producers_batches(
        block, at
    )
