"""The controller's decisions of its term, for other brokers to pull.

It is the metadata log as brokers see it: batches of records with the controller's epoch. Only the
last decisions are kept; a broker that is further behind, or in another term, takes a snapshot.

Offsets of a term begin beyond every offset of earlier terms, so that of two images the image with
the higher end offset is newer.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from ottla.metadata.difference import image_records
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.record_frames import batch_of, metadata_records_of
from ottla.metadata.records import MetadataRecord
from ottla.metadata.replay import UnreplayableRecordError, replay
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import batches

KEPT_BYTES_MAX: Final = 4 << 20
RECORDS_PER_BATCH_MAX: Final = 10_000
_OFFSET_BITS: Final = 32


class Batches(NamedTuple):
    """A controller's decisions after an offset of its term; perhaps none."""

    epoch: int
    data: bytes


class Snapshot(NamedTuple):
    """All of the metadata at one moment of a term."""

    epoch: int
    end_offset: Offset
    data: bytes


class MetadataSource(Protocol):
    """The source of the controller's decisions."""

    async def pull(self, controller: BrokerImage, epoch: int, offset: Offset) -> Batches | Snapshot:
        """Return a controller's decisions after an offset of a term.

        It may wait a while for a decision. If the offset is not of the controller's term, the
        result is a snapshot. ApiError or OSError if the broker does not answer, or is not the
        controller.
        """
        ...


def first_offset(epoch: int) -> Offset:
    """Return where the offsets of a term begin."""
    return Offset(epoch << _OFFSET_BITS)


class MetadataFeed:
    """The batches of one term, and the listeners for the next."""

    def __init__(self, epoch: int, image: ClusterImage, now_ms: int) -> None:
        self.epoch = epoch
        self.image = image
        self.is_closed = False
        """Whether the term is over: there will be no more of it."""
        self._began_ms = now_ms
        self._batches: deque[tuple[int, bytes]] = deque()
        self._kept_bytes = 0
        self._listeners: list[Callable[[], None]] = []

    @property
    def end_offset(self) -> Offset:
        """The first offset that is not decided yet."""
        return self.image.end_offset

    def add(self, records: Sequence[MetadataRecord], image: ClusterImage, now_ms: int) -> None:
        """Add a decision, and the resulting image."""
        assert image.end_offset == self.end_offset + len(records)
        for first in range(0, len(records), RECORDS_PER_BATCH_MAX):
            some = records[first : first + RECORDS_PER_BATCH_MAX]
            base_offset = self.end_offset + first
            data = self._batch_of(some, Offset(base_offset), now_ms)
            self._batches.append((base_offset, data))
            self._kept_bytes += len(data)
        self.image = image
        while self._kept_bytes > KEPT_BYTES_MAX and len(self._batches) > 1:
            self._kept_bytes -= len(self._batches.popleft()[1])
        self._notify()

    def close(self) -> None:
        """Say that the term is over."""
        self.is_closed = True
        self._notify()

    def on_news(self, listener: Callable[[], None]) -> None:
        """Call a listener once, at the next decision or at the end of the term.

        It stays registered until then: a repeated waiter must register only once.
        """
        self._listeners.append(listener)

    def read(self, epoch: int, offset: Offset) -> Batches | None:
        """Return the decisions after an offset of a term; None if that takes a snapshot."""
        if epoch != self.epoch:
            return None
        wanted: list[bytes] = []
        reached = self.end_offset
        for base_offset, data in reversed(self._batches):
            if reached <= offset:
                break
            wanted.append(data)
            reached = Offset(base_offset)
        return Batches(epoch, b"".join(reversed(wanted))) if reached == offset else None

    def snapshot(self) -> Snapshot:
        """Return all there is now."""
        image = self.image
        records = list(image_records(image))
        data = b"".join(
            self._batch_of(
                records[first : first + RECORDS_PER_BATCH_MAX], Offset(first), self._began_ms
            )
            for first in range(0, len(records), RECORDS_PER_BATCH_MAX)
        )
        return Snapshot(self.epoch, image.end_offset, data)

    def _batch_of(
        self, records: Sequence[MetadataRecord], base_offset: Offset, now_ms: int
    ) -> bytes:
        # At the level before these records: a broker cannot know yet that they change it.
        level = self.image.metadata_version
        batch = batch_of(records, level, now_ms, base_offset=base_offset, leader_epoch=self.epoch)
        return bytes(batch)

    def _notify(self) -> None:
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()


def next_image(
    image: ClusterImage, pulled: Batches
) -> tuple[ClusterImage, tuple[MetadataRecord, ...]]:
    """Return the image after pulled batches, and their records.

    ProtocolError if the batches are malformed or do not follow the image.
    """
    records: list[MetadataRecord] = []
    end_offset = image.end_offset
    for batch in batches(pulled.data):
        if batch.base_offset != end_offset:
            raise _invalid(f"a batch at {batch.base_offset}; {end_offset} comes next")
        records += metadata_records_of(batch)
        end_offset = batch.end_offset
    try:
        return replay(image, records, end_offset), tuple(records)
    except UnreplayableRecordError as error:
        raise _invalid(str(error)) from None


def image_of(cluster_id: str, snapshot: Snapshot) -> ClusterImage:
    """Return the image that a snapshot is of; ProtocolError if it is none."""
    try:
        records = [one for batch in batches(snapshot.data) for one in metadata_records_of(batch)]
        return replay(ClusterImage(cluster_id), records, snapshot.end_offset)
    except UnreplayableRecordError as error:
        raise _invalid(str(error)) from None


def _invalid(detail: str) -> ProtocolError:
    return ProtocolError(f"metadata of the controller: {detail}", ErrorCode.INVALID_RECORD)
