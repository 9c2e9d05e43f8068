"""Control batches: records that brokers write for other brokers and for clients.

key   := version int16, type int16
value := of a transaction's end: version int16, coordinator epoch int32
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.record import Record, records_of

_VERSION = 0
_KEY = Struct(">hh")
_END_TXN_VALUE = Struct(">hi")


class ControlType(IntEnum):
    """The type of a control batch. Readers skip unknown types."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_TYPE_BY_NUMBER = {kind.value: kind for kind in ControlType}
_END_TXN_TYPES = (ControlType.ABORT, ControlType.COMMIT)


class EndTxnMarker(NamedTuple):
    """The end of a transaction in a partition; the batch's header names the producer."""

    kind: ControlType
    """ABORT or COMMIT."""
    coordinator_epoch: int


def end_txn_marker(
    kind: ControlType,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
) -> bytearray:
    """Build the batch that ends a producer's transaction; its offset is stamped later."""
    assert kind in _END_TXN_TYPES, kind
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    value = _END_TXN_VALUE.pack(_VERSION, coordinator_epoch)
    builder.append(timestamp_ms, _KEY.pack(_VERSION, kind), value)
    return builder.build()


def control_type_of(batch: RecordBatch) -> ControlType:
    """Return the type of a control batch; ProtocolError if its first record has none.

    UNKNOWN also for a batch of which compaction has left only the header.
    """
    if batch.is_control and batch.record_count == 0:
        return ControlType.UNKNOWN
    return _type_of(batch, _first_record(batch))


def end_txn_marker_of(batch: RecordBatch) -> EndTxnMarker:
    """Read a batch that `end_txn_marker` wrote; ProtocolError for other batches."""
    record = _first_record(batch)
    kind = _type_of(batch, record)
    if kind not in _END_TXN_TYPES or not batch.is_transactional or batch.record_count != 1:
        raise _invalid(batch, "does not end a transaction")
    return EndTxnMarker(kind, _second_field(batch, _END_TXN_VALUE, record.value))


def _first_record(batch: RecordBatch) -> Record:
    if not batch.is_control or batch.record_count == 0:
        raise _invalid(batch, "is no control batch with records")
    return records_of(batch)[0]


def _type_of(batch: RecordBatch, record: Record) -> ControlType:
    number = _second_field(batch, _KEY, record.key)
    return _TYPE_BY_NUMBER.get(number, ControlType.UNKNOWN)


def _second_field(batch: RecordBatch, layout: Struct, data: bytes | None) -> int:
    """Read the field after the version; later versions may add more fields."""
    if data is None or len(data) < layout.size:
        raise _invalid(batch, f"has {len(data or b'')} bytes where {layout.size} are needed")
    version: int
    field: int
    version, field = layout.unpack_from(data)
    if version < _VERSION:
        raise _invalid(batch, f"has version {version}")
    return field


def _invalid(batch: RecordBatch, what: str) -> ProtocolError:
    detail = f"batch at offset {batch.base_offset} {what}"
    return ProtocolError(detail, code=ErrorCode.INVALID_RECORD)
