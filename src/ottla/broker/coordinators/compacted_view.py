"""The content of a compacted log with transactions: the last value per key, and open transactions.

Of two values of a key the later in the log counts, as in `pending_offsets.py`: a transaction that
commits does not bring back a value that was overwritten since.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.model.identifiers import ProducerId
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import NO_PRODUCER_ID, RecordBatch
from ottla.wire.records.control import ControlType, end_txn_marker_of
from ottla.wire.records.record import records_of


class Replayed(NamedTuple):
    """A record to replay, and the transaction that it belongs to."""

    key: bytes
    value: bytes | None
    producer_id: ProducerId


class _Open(NamedTuple):
    number: int
    value: bytes | None
    is_overtaken: bool = False


class CompactedView:
    """Called with the batches of a log in their order."""

    def __init__(self) -> None:
        self._committed: dict[bytes, bytes | None] = {}
        self._open_by_producer: dict[ProducerId, dict[bytes, _Open]] = {}
        self._next_number = 0

    def add(self, batch: RecordBatch) -> None:
        """Apply a batch; an unknown control batch is ignored."""
        if batch.is_control:
            self._end(batch)
        elif batch.is_transactional:
            self._add_open(batch)
        else:
            for record in records_of(batch):
                if record.key is not None:
                    self._commit(record.key, record.value)

    def in_order(self) -> Iterator[Replayed]:
        """Iterate over the remaining records in an order that replays to the same state."""
        opened = [
            (each.number, each.is_overtaken, Replayed(key, each.value, producer_id))
            for producer_id, by_key in self._open_by_producer.items()
            for key, each in by_key.items()
        ]
        opened.sort(key=lambda one: one[0])
        yield from (one for _, is_overtaken, one in opened if is_overtaken)
        for key, value in self._committed.items():
            yield Replayed(key, value, NO_PRODUCER_ID)
        yield from (one for _, is_overtaken, one in opened if not is_overtaken)

    def _add_open(self, batch: RecordBatch) -> None:
        by_key = self._open_by_producer.setdefault(batch.producer_id, {})
        for record in records_of(batch):
            if record.key is not None:
                by_key[record.key] = _Open(self._next_number, record.value)
                self._next_number += 1

    def _end(self, batch: RecordBatch) -> None:
        try:
            marker = end_txn_marker_of(batch)
        except ProtocolError:  # or a batch that compaction has emptied
            return
        ended = self._open_by_producer.pop(batch.producer_id, {})
        if marker.kind is ControlType.COMMIT:
            for key, each in ended.items():
                if not each.is_overtaken:
                    self._commit(key, each.value, each.number)

    def _commit(self, key: bytes, value: bytes | None, number: int | None = None) -> None:
        self._committed.pop(key, None)
        self._committed[key] = value
        for by_key in self._open_by_producer.values():
            each = by_key.get(key)
            if each is None:
                continue
            if value is None:
                del by_key[key]
            elif number is None or each.number < number:
                by_key[key] = each._replace(is_overtaken=True)
