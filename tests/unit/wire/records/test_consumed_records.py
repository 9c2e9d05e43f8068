"""Records read a few at a time, by the compiled reader and its fallback."""

import gc
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records import _reading_python
from ottla.wire.records.batch import RecordBatch, batch_at
from ottla.wire.records.builder import build_batch
from ottla.wire.records.consumer_record import ConsumerRecord
from ottla.wire.records.record import Record, RecordHeader
from tests.record_strategies import record_lists

try:
    from ottla.wire.records import _reading
except ImportError:  # without a compiler there is only the fallback
    _reading = _reading_python
BOTH = [_reading, _reading_python]
RECORDS = [
    Record(40, 1_700_000_000_000, b"key", b"value", (RecordHeader("h", b"x"),)),
    Record(41, 1_699_999_999_990, b"key", None),
    Record(45, 1_700_000_000_300, None, b"", (RecordHeader("é", None),)),
]
Readers = tuple[Any, Any]


def opened(
    module: ModuleType, batch: RecordBatch, start: int = 0, readers: Readers = (None, None)
) -> Any:
    section = batch.records_view
    place = ("letters", 3)
    return module.ConsumedRecords(
        batch, section, start, place, readers, ConsumerRecord, RecordHeader
    )


def expected(records: list[Record]) -> list[ConsumerRecord]:
    return [
        ConsumerRecord("letters", 3, r.offset, r.timestamp_ms, 0, r.key, r.value, r.headers, 9)
        for r in records
    ]


def batch_of(records: list[Record]) -> RecordBatch:
    batch = batch_at(build_batch(records))
    batch.restamp(batch.base_offset, 9)
    return batch


def all_steps(consumed: Any, count: int) -> list[Any]:
    """Return the result of every call, the offset after it, and the final state or error."""
    steps: list[Any] = []
    for _ in range(100):
        try:
            steps.append((consumed.read(count), consumed.next_offset, consumed.is_over))
        except ProtocolError as error:
            steps.append((error.code, error.detail, consumed.tried_offset, consumed.next_offset))
            return steps
        if consumed.is_over:
            return steps
    raise AssertionError("it does not end")


@pytest.mark.parametrize("module", BOTH)
def test_records_come_a_few_at_a_time_with_all_that_is_known(module: ModuleType) -> None:
    consumed = opened(module, batch_of(RECORDS))
    assert consumed.read(2) == expected(RECORDS[:2])
    assert (consumed.next_offset, consumed.is_over) == (42, False)
    found = consumed.read(2)
    assert found == expected(RECORDS[2:])
    assert type(found[0]) is ConsumerRecord
    assert (consumed.next_offset, consumed.is_over) == (46, True)
    assert consumed.read(2) == []


@pytest.mark.parametrize("module", BOTH)
def test_reading_begins_inside_a_batch(module: ModuleType) -> None:
    consumed = opened(module, batch_of(RECORDS), start=42)
    assert consumed.next_offset == 42
    assert consumed.read(10) == expected(RECORDS[2:])


@pytest.mark.parametrize("module", BOTH)
def test_keys_and_values_go_through_their_readers_and_nulls_do_not(module: ModuleType) -> None:
    seen = []

    def read_value(topic: str, data: bytes, headers: Any) -> str:
        seen.append((topic, headers))
        return data.decode().upper()

    consumed = opened(module, batch_of(RECORDS), readers=(None, read_value))
    assert [record.value for record in consumed.read(9)] == ["VALUE", None, ""]
    assert seen == [("letters", RECORDS[0].headers), ("letters", RECORDS[2].headers)]


@pytest.mark.parametrize("module", BOTH)
def test_what_a_reader_refuses_is_told_with_its_offset_after_all_before_it(
    module: ModuleType,
) -> None:
    def refuse_empty(topic: str, data: bytes, headers: Any) -> bytes:
        if not data:
            raise LookupError("nothing")
        return data

    consumed = opened(module, batch_of(RECORDS), readers=(None, refuse_empty))
    assert [record.offset for record in consumed.read(9)] == [40, 41]
    for _ in range(2):
        with pytest.raises(LookupError, match="nothing"):
            consumed.read(9)
        assert (consumed.tried_offset, consumed.next_offset) == (45, 42)


@pytest.mark.usefixtures("needs_compiled_loops")
@given(records=record_lists(), count=st.integers(1, 5), skipped=st.integers(0, 5))
def test_compiled_and_plain_agree(records: list[Record], count: int, skipped: int) -> None:
    batch = batch_of(records)
    start = batch.base_offset + skipped
    steps = [all_steps(opened(module, batch, start), count) for module in BOTH]
    assert steps[0] == steps[1]
    given_out = [record for step in steps[0] for record in step[0]]
    assert given_out == expected([record for record in records if record.offset >= start])


@pytest.mark.usefixtures("needs_compiled_loops")
@given(records=record_lists(), count=st.integers(1, 5), damage=st.data())
def test_compiled_and_plain_agree_on_damage(
    records: list[Record], count: int, damage: st.DataObject
) -> None:
    raw = bytearray(build_batch(records))
    if len(raw) > 61:
        at = damage.draw(st.integers(61, len(raw) - 1))
        raw[at] = damage.draw(st.integers(0, 255))
    batch = batch_at(raw)
    start = batch.base_offset + 1
    steps = [all_steps(opened(module, batch, start), count) for module in BOTH]
    assert steps[0] == steps[1]


@pytest.mark.parametrize("module", BOTH)
def test_records_collected_in_a_cycle_release_their_bytes(module: ModuleType) -> None:
    content = bytearray(build_batch(RECORDS))
    circle: dict[str, Any] = {}  # the collector sees it as younger than its contents
    circle["consumed"] = opened(module, batch_at(content), readers=(circle, None))
    with pytest.raises(BufferError):
        content.append(0)
    del circle
    gc.collect()
    content.append(0)
