"""The data of one partition from one fetch, returned piece by piece as records or Arrow."""

from collections.abc import Collection
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.clients.consumer.state.errors import (
    CorruptRecordError,
    DeserializationError,
    RecordError,
    SchemaNeededError,
)
from ottla.clients.consumer.state.subscription import AssignedPartition, Position
from ottla.clients.records.serializers import MissingSchemaError
from ottla.wire.messages.fetch import AbortedTransaction
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, RecordBatch, batches
from ottla.wire.records.consumer_record import ConsumerRecord
from ottla.wire.records.control import ControlType, control_type_of
from ottla.wire.records.loops import ConsumedRecords
from ottla.wire.records.record import RecordHeader, uncompressed_records

if TYPE_CHECKING:
    from ottla.clients.records.serializers import Deserialize

    Readers = tuple[Deserialize | None, Deserialize | None]

_PLACE: Final = Struct(">qii")
"""The first three fields of a batch: its base offset, its length, its leader epoch."""
_LAST_OFFSET_DELTA: Final = Struct(">i")
_LAST_OFFSET_DELTA_AT: Final = 23


def end_of_batches(data: memoryview) -> Position | None:
    """Return the end of the last whole batch, None without one; batch headers are not validated."""
    position, end = 0, None
    while len(data) - position >= HEADER_BYTES:
        base_offset, length, epoch = _PLACE.unpack_from(data, position)
        size = max(length, HEADER_BYTES - LOG_OVERHEAD_BYTES) + LOG_OVERHEAD_BYTES
        if size > len(data) - position:
            break
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(data, position + _LAST_OFFSET_DELTA_AT)
        end = Position(base_offset + delta + 1, epoch)
        position += size
    return end


class AbortedBatches:
    """Recognizes the batches of aborted transactions; it must see all batches, in order."""

    def __init__(self, transactions: Collection[AbortedTransaction]) -> None:
        self._waiting = sorted(transactions, key=lambda row: row.first_offset, reverse=True)
        self._aborted: set[int] = set()

    def copy(self) -> "AbortedBatches":
        """Return an independent copy, for a read that may be discarded."""
        copied = AbortedBatches(self._waiting)
        copied._aborted = set(self._aborted)
        return copied

    def includes(self, batch: RecordBatch) -> bool:
        """Whether to skip this batch: its transaction was aborted, or it is a control batch."""
        while self._waiting and self._waiting[-1].first_offset <= batch.last_offset:
            self._aborted.add(self._waiting.pop().producer_id)
        if batch.is_control:
            if control_type_of(batch) is ControlType.ABORT:
                self._aborted.discard(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self._aborted


class ArrowRows(NamedTuple):
    """The Arrow form of a fetch's first bytes, and the open aborted transactions behind them."""

    batches: list[Any]
    size_bytes: int
    aborted: AbortedBatches | None


class FetchedPartition:
    """Batches of one partition, starting at an offset. Reading moves the partition's position.

    Callers hold the subscription's lock, because the position and the unread batches change
    together.
    """

    def __init__(
        self,
        partition: AssignedPartition,
        data: memoryview,
        aborted: Collection[AbortedTransaction] | None,
        *,
        check_crcs: bool,
        is_committed_only: bool,
    ) -> None:
        self.partition = partition
        self.generation = partition.generation
        self.size_bytes = len(data)
        self._data = data
        self._check_crcs = check_crcs
        self._aborted = AbortedBatches(aborted or ()) if is_committed_only else None
        self._batch: RecordBatch | None = None
        self._records: ConsumedRecords | None = None
        self.is_over = False

    @property
    def next_offset(self) -> int:
        """The offset of the next record to read."""
        return self._position.offset

    @property
    def is_current(self) -> bool:
        """Whether these batches still continue the position; False after a seek or reset."""
        return self.generation == self.partition.generation

    def read(self, count: int, readers: "Readers") -> list[ConsumerRecord]:
        """Return the next records, at most this many; fewer at the end.

        RecordError if the next record cannot be read; the position stays at it.
        """
        records: list[ConsumerRecord] = []
        try:
            while len(records) < count and not self.is_over:
                records += self._read_on(count - len(records), readers)
        except RecordError:
            if not records:
                raise  # otherwise the next call raises it
        return records

    def as_arrow(self, start_offset: int, columns: Collection[str] | None) -> ArrowRows:
        """Return the unread batches as Arrow, up to the first damaged batch.

        RecordError if the next batch is damaged. The single reader needs no lock here, because only
        `finish` changes the state.
        """
        aborted = None if self._aborted is None else self._aborted.copy()
        try:
            rows = self._arrow_of(self._data, start_offset, columns, aborted)
        except ProtocolError:
            return self._arrow_before_damage(start_offset, columns)
        return ArrowRows(rows, len(self._data), aborted)

    def _arrow_before_damage(self, start_offset: int, columns: Collection[str] | None) -> ArrowRows:
        """Convert batch by batch, up to the first damaged one."""
        aborted = None if self._aborted is None else self._aborted.copy()
        rows: list[Any] = []
        position, batch = 0, None
        try:
            while (batch := next(batches(self._data[position:]), None)) is not None:
                data = self._data[position : position + batch.size_bytes]
                rows += self._arrow_of(data, start_offset, columns, aborted)
                position += batch.size_bytes
        except ProtocolError as error:
            if position == 0:
                raise self._corrupt(start_offset, error, batch) from error
            return ArrowRows(rows, position, aborted)
        return ArrowRows(rows, len(self._data), aborted)

    def _arrow_of(
        self,
        data: memoryview,
        start_offset: int,
        columns: Collection[str] | None,
        aborted: AbortedBatches | None,
    ) -> list[Any]:
        from ottla.wire.records.arrow import arrow_batches  # noqa: PLC0415 - pyarrow is heavy

        rows = arrow_batches(
            data,
            *self.partition.name,
            start_offset=start_offset,
            columns=columns,
            check_crcs=self._check_crcs,
            skip=None if aborted is None else aborted.includes,
        )
        return list(rows)

    def finish(self, rows: ArrowRows) -> None:
        """Move the position behind the returned Arrow rows."""
        self._move(end_of_batches(self._data[: rows.size_bytes]) or self._position)
        self._records = self._batch = None
        self._data = self._data[rows.size_bytes :]
        self._aborted = rows.aborted
        self.is_over = not self._data

    def _read_on(self, count: int, readers: "Readers") -> list[ConsumerRecord]:
        """Read from the open batch, or open the next."""
        if self._records is None:
            self._open_next(readers)
            return []
        assert self._batch is not None
        try:
            records = self._records.read(count)
        except Exception as error:
            raise self._unreadable(self._records.tried_offset, error) from error
        if self._records.is_over:
            self._close_batch(self._batch)
        else:
            epoch = self._batch.partition_leader_epoch
            self._move(Position(self._records.next_offset, epoch))
        return records

    def _open_next(self, readers: "Readers") -> None:
        position = self._position
        try:
            batch = self._batch = next(batches(self._data), None)
            if batch is None:
                self.is_over = True
            elif self._is_wanted(batch, position.offset):
                self._records = ConsumedRecords(
                    batch,
                    uncompressed_records(batch),
                    position.offset,
                    self.partition.name,
                    readers,
                    ConsumerRecord,
                    RecordHeader,
                )
            else:
                self._close_batch(batch)
        except ProtocolError as error:
            raise self._corrupt(position.offset, error, self._batch) from error

    def _is_wanted(self, batch: RecordBatch, offset: int) -> bool:
        if self._check_crcs:
            batch.check_crc()
        is_left_out = batch.is_control if self._aborted is None else self._aborted.includes(batch)
        return not is_left_out and batch.end_offset > offset

    def _close_batch(self, batch: RecordBatch) -> None:
        self._records = self._batch = None
        self._data = self._data[batch.size_bytes :]
        self._move(Position(batch.end_offset, batch.partition_leader_epoch))

    @property
    def _position(self) -> Position:
        assert self.partition.position is not None
        return self.partition.position

    def _move(self, to: Position) -> None:
        if to.offset >= self._position.offset:
            self.partition.position = to

    def _unreadable(self, offset: int, error: Exception) -> RecordError:
        self._move(Position(offset, self._position.leader_epoch))
        if isinstance(error, ProtocolError):
            return self._corrupt(offset, error, self._batch)
        if isinstance(error, MissingSchemaError):
            return SchemaNeededError(self.partition.name, offset, error)
        reason = f"{type(error).__name__}: {error}"
        return DeserializationError(self.partition.name, offset, reason, offset + 1)

    def _corrupt(
        self, offset: int, error: ProtocolError, batch: RecordBatch | None
    ) -> CorruptRecordError:
        end = offset + 1 if batch is None else max(batch.end_offset, offset + 1)
        return CorruptRecordError(self.partition.name, offset, error.detail, end)
