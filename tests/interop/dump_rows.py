"""Ottla's view of log files, in the format of Kafka's dump tool, for comparison."""

from ottla.storage.indexes.aborted_index import VERSION, AbortedTransaction
from ottla.storage.log.log import PartitionLog
from ottla.storage.producers.producer_snapshot import ProducerEntry
from ottla.wire.records.batch import RecordBatch


def batch_rows(log: PartitionLog) -> list[dict[str, str]]:
    """Describe all batches of all segments."""
    return [
        batch_row(batch, position)
        for segment in log.segments
        for position, batch in segment.batches_at(0)
    ]


def batch_row(batch: RecordBatch, position: int) -> dict[str, str]:
    """Describe a batch at a position of its file."""
    row = {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.record_count,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "isTransactional": _word(is_so=batch.is_transactional),
        "isControl": _word(is_so=batch.is_control),
        "deleteHorizonMs": _optional(batch.base_timestamp_ms if batch.has_delete_horizon else None),
        "position": position,
        "LogAppendTime" if batch.is_log_append_time else "CreateTime": batch.max_timestamp_ms,
        "size": batch.size_bytes,
        "magic": batch.magic,
        "compresscodec": batch.compression.name.lower(),
        "crc": batch.crc,
        "isvalid": _word(is_so=batch.has_valid_crc()),
    }
    return {name: str(value) for name, value in row.items()}


def producer_row(entry: ProducerEntry) -> dict[str, str]:
    """Describe an entry of a producer snapshot."""
    first_offset = entry.transaction_first_offset
    row = {
        "producerId": entry.producer_id,
        "producerEpoch": entry.producer_epoch,
        "coordinatorEpoch": entry.coordinator_epoch,
        "currentTxnFirstOffset": _optional(first_offset if first_offset >= 0 else None),
        "lastTimestamp": entry.timestamp_ms,
    }
    if entry.last_offset >= 0:
        row |= {
            "firstSequence": entry.last_sequence - entry.offset_delta,
            "lastSequence": entry.last_sequence,
            "lastOffset": entry.last_offset,
            "offsetDelta": entry.offset_delta,
            "timestamp": entry.timestamp_ms,
        }
    return {name: str(value) for name, value in row.items()}


def aborted_row(transaction: AbortedTransaction) -> dict[str, str]:
    """Describe an entry of the index of aborted transactions."""
    row = {
        "version": VERSION,
        "producerId": transaction.producer_id,
        "firstOffset": transaction.first_offset,
        "lastOffset": transaction.last_offset,
        "lastStableOffset": transaction.last_stable_offset,
    }
    return {name: str(value) for name, value in row.items()}


def _word(*, is_so: bool) -> str:
    return str(is_so).lower()


def _optional(number: int | None) -> str:
    return "OptionalLong.empty" if number is None else f"OptionalLong[{number}]"
