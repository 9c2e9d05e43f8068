"""The logs that the tests have Ottla write, for Kafka to read.

codecs-0        every codec; rolled by size and by age; two epochs
transactions-0  idempotent and transactional producers, markers, a transaction left open
stamped-0       LogAppendTime
zipped-0        all batches are compressed with zstd by the broker; rolled by full indexes
fetched-0       a follower's copy of codecs-0
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.model.settings.topic_config import TimestampType, TopicConfig
from ottla.storage.log.admission import Origin
from ottla.storage.log.log import PartitionLog
from ottla.wire.records.builder import build_batch
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.control import ControlType, end_txn_marker
from ottla.wire.records.record import Record, RecordHeader
from tests.interop.ottla_folder import OttlaFolder, batches_in
from tests.interop.seen import SeenRecord, text_of

TOPICS = ("codecs", "transactions", "stamped", "zipped", "fetched")
BATCHES = 60
"""For each codec."""
LARGE_NUMBERS = 30_000
SMALL = TopicConfig(segment_bytes=12_000, index_interval_bytes=600, segment_ms=400_000)
CONFIG = {
    "codecs": SMALL,
    "transactions": TopicConfig(segment_bytes=3_000, index_interval_bytes=0),
    "stamped": TopicConfig(
        message_timestamp_type=TimestampType.LOG_APPEND_TIME, index_interval_bytes=300
    ),
    "zipped": TopicConfig(compression_type="zstd", segment_index_bytes=36, index_interval_bytes=0),
    "fetched": SMALL,
}


@dataclass
class Written:
    """The records of a partition, and the subset that is hidden from read_committed consumers."""

    records: list[SeenRecord] = field(default_factory=list)
    hidden: set[int] = field(default_factory=set)

    @property
    def committed(self) -> list[SeenRecord]:
        """The records that a read_committed consumer sees."""
        return [record for record in self.records if record.offset not in self.hidden]


class Sender(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    producer_epoch: int


NO_SENDER = Sender(-1, -1)


def write_story(folder: OttlaFolder) -> dict[str, Written]:
    """Write to all partitions, which are empty before; the log dir stays open."""
    logs = {topic: folder.log(topic) for topic in TOPICS}
    now_ms = folder.now_ms
    written = {
        "codecs": _write_codecs(logs["codecs"], now_ms),
        "transactions": _Transactions(logs["transactions"], now_ms).write(),
        "stamped": _write_stamped(logs["stamped"], now_ms),
        "zipped": _write_zipped(logs["zipped"], now_ms),
    }
    for batch in batches_in(logs["codecs"]):
        logs["fetched"].append_as_follower(batch.raw, now_ms)
    written["fetched"] = written["codecs"]
    return written


def continue_story(folder: OttlaFolder) -> tuple[Written, PartitionLog]:
    """Append to codecs-0, and commit the open transaction in transactions-0; return both."""
    written = _write_codecs(folder.log("codecs"), folder.now_ms)
    log = folder.log("transactions")
    _Transactions(log, folder.now_ms).commit_second()
    return written, log


def _write_codecs(log: PartitionLog, now_ms: int) -> Written:
    written = Written()
    first_epoch = log.epochs.latest_epoch or 0
    for number in range(BATCHES * len(Compression)):
        codec = Compression(number % len(Compression))
        # Mostly rising, at times falling, as timestamps do.
        start_ms = now_ms - 3_600_000 + number * 10_000 - number % 7 * 12_000
        records = list(_records(number, start_ms))
        _append(log, written, records, now_ms, epoch=first_epoch + number // 150, compression=codec)
    return written


def _write_stamped(log: PartitionLog, now_ms: int) -> Written:
    written = Written()
    for number in range(30):
        codec = Compression(number % len(Compression))
        records = list(_records(number, 1000 * number))
        _append(log, written, records, now_ms + number // 3, compression=codec)
    for codec in Compression:
        # More than one block of any codec.
        value = " ".join(str(number * number) for number in range(LARGE_NUMBERS)).encode()
        large = Record(0, 0, codec.name.encode(), value)
        _append(log, written, [large], now_ms + 20, compression=codec)
    return written


def _write_zipped(log: PartitionLog, now_ms: int) -> Written:
    written = Written()
    for number in range(30):
        codec = Compression(number % len(Compression))
        _append(log, written, list(_records(number, now_ms + number)), now_ms, compression=codec)
    return written


def _records(number: int, start_ms: int) -> Iterator[Record]:
    """Make a batch of records, from one of a few bytes to many that are worth compressing."""
    for delta in range(1 + number % 9):
        key = None if (number + delta) % 5 == 0 else f"key {number}.{delta}".encode()
        value = None if (number + delta) % 11 == 0 else f"value {number} ".encode() * (number % 13)
        headers = tuple(
            RecordHeader(f"h{n}", None if n == 2 else b"\xc5\xbe" * n) for n in range(delta % 4)
        )
        yield Record(delta, start_ms + delta * 3 % 4, key, value, headers)


def _append(
    log: PartitionLog,
    written: Written,
    records: list[Record],
    now_ms: int,
    *,
    epoch: int = 0,
    compression: Compression = Compression.NONE,
    sender: Sender = NO_SENDER,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> int:
    raw = build_batch(
        records,
        compression=compression,
        producer_id=sender.producer_id,
        producer_epoch=sender.producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
    base_offset, _, append_ms, is_duplicate = log.append_as_leader(memoryview(raw), epoch, now_ms)
    assert not is_duplicate
    for record in records:
        headers = tuple((header.key, text_of(header.value)) for header in record.headers)
        written.records.append(
            SeenRecord(
                base_offset + record.offset,
                append_ms if append_ms >= 0 else record.timestamp_ms,
                text_of(record.key),
                text_of(record.value),
                headers,
            )
        )
    return base_offset


class _Transactions:
    """Write with three producers alternately: one only idempotent, two with transactions."""

    IDEMPOTENT = Sender(4000, 7)
    FIRST = Sender(4001, 0)
    SECOND = Sender(2**40, 3)

    def __init__(self, log: PartitionLog, now_ms: int) -> None:
        self._log = log
        self._now_ms = now_ms
        self._written = Written()
        self._next_sequence = {self.IDEMPOTENT: 0, self.FIRST: 0, self.SECOND: 0}
        self._open: dict[Sender, list[int]] = {self.FIRST: [], self.SECOND: []}

    def write(self) -> Written:
        for turn in range(24):
            self._send(self.IDEMPOTENT, turn)
            self._send(self.FIRST, turn)
            self._send(self.SECOND, turn + 1)
            if turn % 4 == 3:
                self._end(self.FIRST, ControlType.COMMIT if turn % 8 == 3 else ControlType.ABORT)
            if turn % 6 == 1:
                self._end(self.SECOND, ControlType.ABORT)
        self._end(self.FIRST, ControlType.COMMIT)
        first_open = self._open[self.SECOND][0]
        undecided = {r.offset for r in self._written.records if r.offset >= first_open}
        self._written.hidden |= undecided
        return self._written

    def commit_second(self) -> None:
        self._end(self.SECOND, ControlType.COMMIT)

    def _send(self, sender: Sender, number: int) -> None:
        is_transactional = sender is not self.IDEMPOTENT
        records = list(_records(number, self._now_ms + number))
        base_offset = _append(
            self._log,
            self._written,
            records,
            self._now_ms,
            epoch=1,
            compression=Compression(number % len(Compression)),
            sender=sender,
            base_sequence=self._next_sequence[sender],
            is_transactional=is_transactional,
        )
        self._next_sequence[sender] += len(records)
        if is_transactional:
            self._open[sender] += range(base_offset, base_offset + len(records))

    def _end(self, sender: Sender, kind: ControlType) -> None:
        marker = end_txn_marker(kind, 5, *sender, self._now_ms)
        self._log.append_as_leader(memoryview(marker), 1, self._now_ms, origin=Origin.COORDINATOR)
        if kind is ControlType.ABORT:
            self._written.hidden.update(self._open[sender])
        self._open[sender] = []
