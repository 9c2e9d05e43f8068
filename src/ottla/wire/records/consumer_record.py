"""The record that a consumer returns, with its metadata."""

from typing import Any, NamedTuple

from ottla.wire.records.record import RecordHeader


class ConsumerRecord(NamedTuple):
    """One record as an application sees it. Nulls are None; a tombstone is a value of None."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970, -1 if the record has none."""
    timestamp_type: int
    """0 if the producer set the timestamp (CreateTime), 1 if the broker did (LogAppendTime)."""
    key: Any
    value: Any
    headers: tuple[RecordHeader, ...]
    leader_epoch: int
