import struct
from typing import Any

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import HEADER_BYTES, RecordBatch, batch_at, write_crc
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.control import (
    ControlType,
    EndTxnMarker,
    control_type_of,
    end_txn_marker,
    end_txn_marker_of,
)
from ottla.wire.records.record import records_of
from tests.record_peers import KafkaPythonBatch

NOW = 1_700_000_000_000
KINDS = [ControlType.ABORT, ControlType.COMMIT]


def control_batch(
    key: bytes | None, value: bytes | None = b"", *, is_control: bool = True, **fields: Any
) -> RecordBatch:
    builder = BatchBuilder(is_control=is_control, **{"is_transactional": True} | fields)
    builder.append(NOW, key, value)
    return batch_at(builder.build())


def refusal(batch: RecordBatch) -> str:
    with pytest.raises(ProtocolError) as caught:
        end_txn_marker_of(batch)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    return caught.value.detail


@pytest.mark.parametrize("kind", KINDS)
@given(
    coordinator_epoch=st.integers(0, 2**31 - 1),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
)
def test_a_marker_is_read_back(
    kind: ControlType, coordinator_epoch: int, producer_id: int, producer_epoch: int
) -> None:
    raw = end_txn_marker(kind, coordinator_epoch, producer_id, producer_epoch, NOW)
    batch = batch_at(raw)
    batch.check_crc()
    batch.check_gapless()
    assert control_type_of(batch) is kind
    assert end_txn_marker_of(batch) == EndTxnMarker(kind, coordinator_epoch)
    assert (batch.producer_id, batch.producer_epoch) == (producer_id, producer_epoch)
    assert batch.is_control
    assert batch.is_transactional
    assert batch.base_sequence == -1
    assert batch.max_timestamp_ms == NOW


def test_a_marker_has_the_bytes_of_the_protocol() -> None:
    (record,) = records_of(batch_at(end_txn_marker(ControlType.COMMIT, 258, 1, 0, NOW)))
    assert record.key == b"\0\0\0\1"
    assert record.value == b"\0\0\0\0\1\2"


@pytest.mark.parametrize(("kind", "theirs"), [(KINDS[0], ABORT_MARKER), (KINDS[1], COMMIT_MARKER)])
def test_others_understand_our_markers(kind: ControlType, theirs: ControlRecord) -> None:
    raw = bytes(end_txn_marker(kind, 3, 1001, 4, NOW))
    (record,) = records_of(batch_at(raw))
    assert record.key is not None
    assert ControlRecord.parse(record.key) == theirs
    (peer,) = KafkaPythonBatch(raw)
    assert (peer.abort, peer.commit) == (kind is ControlType.ABORT, kind is ControlType.COMMIT)


@pytest.mark.parametrize("kind", ControlType)
def test_every_type_is_recognised(kind: ControlType) -> None:
    assert control_type_of(control_batch(struct.pack(">hh", 0, kind))) is kind


def test_a_type_of_the_future_is_unknown_but_no_error() -> None:
    assert control_type_of(control_batch(struct.pack(">hh", 0, 7))) is ControlType.UNKNOWN


def test_a_version_of_the_future_may_say_more() -> None:
    batch = control_batch(struct.pack(">hhq", 1, 1, 5), struct.pack(">hiq", 2, 33, 5))
    assert end_txn_marker_of(batch) == EndTxnMarker(ControlType.COMMIT, 33)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        (None, b"\0" * 6, "has 0 bytes where 4 are needed"),
        (b"\0\0\0", b"\0" * 6, "has 3 bytes where 4 are needed"),
        (b"\0\0\0\1", None, "has 0 bytes where 6 are needed"),
        (b"\0\0\0\1", b"\0" * 5, "has 5 bytes where 6 are needed"),
        (b"\xff\xff\0\1", b"\0" * 6, "has version -1"),
        (b"\0\0\0\1", b"\x80\0\0\0\0\0", "has version -32768"),
        (b"\0\0\0\2", b"\0" * 6, "does not end a transaction"),
    ],
)
def test_a_batch_without_a_marker_is_refused(
    key: bytes | None, value: bytes | None, complaint: str
) -> None:
    batch = control_batch(key, value, base_offset=12)
    assert refusal(batch) == f"batch at offset 12 {complaint}"


def test_only_a_transactional_control_batch_of_one_record_is_a_marker() -> None:
    commit, value = b"\0\0\0\1", b"\0" * 6
    assert "no control batch" in refusal(control_batch(commit, value, is_control=False))
    assert "does not end" in refusal(control_batch(commit, value, is_transactional=False))
    builder = BatchBuilder(is_control=True, is_transactional=True)
    builder.extend(NOW, [value, value], [commit, commit])
    assert "does not end" in refusal(batch_at(builder.build()))


def test_a_control_batch_emptied_by_compaction_is_refused() -> None:
    raw = end_txn_marker(ControlType.COMMIT, 1, 1, 0, NOW)[:HEADER_BYTES]
    struct.pack_into(">i", raw, 8, HEADER_BYTES - 12)
    struct.pack_into(">i", raw, 57, 0)
    write_crc(memoryview(raw))
    assert "no control batch with records" in refusal(batch_at(raw))


def test_only_ends_of_transactions_can_be_written() -> None:
    with pytest.raises(AssertionError):
        end_txn_marker(ControlType.LEADER_CHANGE, 1, 1, 0, NOW)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_damaged_marker_ends_in_a_value_or_a_protocol_error(position: int, byte: int) -> None:
    raw = end_txn_marker(ControlType.ABORT, 1, 1, 0, NOW)
    raw[position % len(raw)] ^= byte
    try:
        batch = RecordBatch(memoryview(raw))
        marker = end_txn_marker_of(batch)
    except ProtocolError:
        return
    assert marker.kind in KINDS
