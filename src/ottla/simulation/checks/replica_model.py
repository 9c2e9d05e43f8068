"""A model of one replica's batches, for checks that see every log."""

from functools import lru_cache
from typing import Final, NamedTuple

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset
from ottla.storage.log.log import PartitionLog
from ottla.wire.records.batch import batch_at, batches
from ottla.wire.records.control import EndTxnMarker, end_txn_marker_of

READ_BYTES: Final = 1 << 24
CONTENTS_MAX: Final = 1000


class Batch(NamedTuple):
    """The identity of a batch."""

    base_offset: int
    end_offset: int
    epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    marker: EndTxnMarker | None
    """How a transaction ended, in a batch that says so."""
    content: bytes
    """All of it, the header included."""

    def __repr__(self) -> str:
        return (
            f"<Batch {self.base_offset}..{self.end_offset - 1} of epoch {self.epoch}, "
            f"crc {self.crc}, of producer {self.producer_id} in {self.producer_epoch}, "
            f"sequences {self.base_sequence}..{self.last_sequence}, "
            f"transactional {self.is_transactional}, marker {self.marker}>"
        )


@lru_cache(maxsize=CONTENTS_MAX)
def batch_of(content: bytes) -> Batch:
    """Parse a batch's header, and its marker: once, however many replicas have it."""
    one = batch_at(content)
    return Batch(
        one.base_offset,
        one.end_offset,
        one.partition_leader_epoch,
        one.crc,
        one.producer_id,
        one.producer_epoch,
        one.base_sequence,
        one.last_sequence,
        one.is_transactional,
        end_txn_marker_of(one) if one.is_control else None,
        content,
    )


class ReplicaModel:
    """Follows a log: reads each batch once, and again after a truncation."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.batches: list[Batch] = []
        self.compared_count = 0
        """How many batches, from the first, were compared with the committed ones."""
        self._cut_count = log.cut_count
        self._end_offset = log.log_start_offset

    def update(self) -> tuple[list[Batch], list[Batch]]:
        """Return the batches appended since the last call, and the truncated ones."""
        if self.log.cut_count == self._cut_count:
            known = len(self.batches)
            self._read_on()
            return self.batches[known:], []
        before = self.batches
        self.batches, self._cut_count = [], self.log.cut_count
        self.compared_count = 0
        self._end_offset = self.log.log_start_offset
        self._read_on()
        there = set(self.batches)
        return self.batches, [one for one in before if one not in there]

    def _read_on(self) -> None:
        while self._end_offset < self.log.end_offset:
            part = self.log.read(self._end_offset, self.log.end_offset, READ_BYTES)
            found = [batch_of(bytes(one.raw)) for one in batches(memoryview(part.read()))]
            if not found:
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"nothing is at {self._end_offset}")
            self.batches += found
            self._end_offset = Offset(found[-1].end_offset)
