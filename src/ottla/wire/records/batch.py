"""One record batch (magic 2) as it lies in memory: the header parsed, the records left as bytes.

byte  0  base offset             8   | outside the checksum, so that a broker may stamp
      8  length of the rest      4   | a batch without reading it
     12  partition leader epoch  4   |
     16  magic                   1   |
     17  CRC-32C of the rest     4   |
     21  attributes              2   bits 0-2 codec, 3 log append time, 4 transactional,
     23  last offset delta       4        5 control, 6 delete horizon
     27  base timestamp          8
     35  max timestamp           8
     43  producer id             8
     51  producer epoch          2
     53  base sequence           4
     57  record count            4
     61  records, compressed as one block
"""

from collections.abc import Iterator
from struct import Struct

from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import LeaderEpoch, Offset, ProducerId
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.crc32c import crc32c

MAGIC = 2
HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
"""Base offset and length: the bytes that the length field does not count."""
NO_SEQUENCE = -1
NO_PRODUCER_ID = ProducerId(-1)

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

HEADER = Struct(">qiibIhiqqqhii")
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
"""The position of the magic byte, the same in message sets and in batches."""
ATTRIBUTES_AT = 21
ATTRIBUTES_LOW_BYTE_AT = 22
"""The byte with all defined bits of the attributes."""
_LENGTH = Struct(">i")
_LENGTH_AT = 8
_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_CRC = Struct(">I")
_CRC_AT = 17
_CHECKED_FROM = 21
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_MAX_TIMESTAMP_AT = 35
_SEQUENCE_MODULUS = 1 << 31
_CODECS = tuple(Compression)

Buffer = bytes | bytearray | memoryview


class RecordBatch:
    """A view of exactly one batch; nothing is copied, so the buffer must outlive it.

    Construction reads the header alone: it raises ProtocolError when the header cannot be right,
    and says nothing about the checksum (check_crc) or the records (records_of, scan_records).
    Compacted batches may hold fewer records than their offsets span, even none.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp_ms",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp_ms",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "raw",
        "record_count",
    )

    raw: memoryview
    base_offset: Offset
    partition_leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int
    record_count: int

    def __init__(self, raw: memoryview) -> None:
        if len(raw) < HEADER_BYTES or raw[MAGIC_AT] != MAGIC:
            raise _header_error(raw)
        self.raw = raw
        (
            self.base_offset,
            length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp_ms,
            self.max_timestamp_ms,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = HEADER.unpack_from(raw)
        if length != len(raw) - LOG_OVERHEAD_BYTES:
            raise _corrupt(
                f"batch has {len(raw)} bytes, its header says {length + LOG_OVERHEAD_BYTES}"
            )
        if not 0 <= self.record_count <= self.last_offset_delta + 1:
            raise _corrupt(
                f"batch has {self.record_count} records"
                f" and a last offset delta of {self.last_offset_delta}"
            )

    def __repr__(self) -> str:
        return (
            f"<RecordBatch offsets {self.base_offset}..{self.last_offset},"
            f" {self.record_count} records, {self.size_bytes} bytes>"
        )

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return len(self.raw)

    @property
    def last_offset(self) -> Offset:
        """The offset of the last record, even if compaction has removed it."""
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def end_offset(self) -> Offset:
        """The first offset after this batch."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def compression(self) -> Compression:
        """The codec of the records; ProtocolError for a number that names none."""
        codec = self.attributes & CODEC_MASK
        if codec >= len(_CODECS):
            raise ProtocolError(
                f"batch is compressed with unknown codec {codec}",
                code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            )
        return _CODECS[codec]

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record carries the broker's time, max_timestamp_ms."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether a broker wrote this, for brokers and clients rather than for applications."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether base_timestamp_ms is the time from which compaction may drop tombstones."""
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer wrote this."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number, which starts at 0 again after 2**31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCE_MODULUS

    @property
    def records_view(self) -> memoryview:
        """The records as they are stored: compressed, if the batch is."""
        return self.raw[HEADER_BYTES:]

    def has_valid_crc(self) -> bool:
        """Whether the checksum matches the bytes."""
        return crc32c(self.raw[_CHECKED_FROM:]) == self.crc

    def check_crc(self) -> None:
        """Raise ProtocolError if the checksum does not match the bytes."""
        actual = crc32c(self.raw[_CHECKED_FROM:])
        if actual != self.crc:
            raise _corrupt(f"batch says its CRC is {self.crc:#010x}, its bytes say {actual:#010x}")

    def check_gapless(self) -> None:
        """Raise ProtocolError unless the header counts one record for each of its offsets.

        Every batch fresh from a producer does, and has at least one record.
        """
        if self.record_count == 0 or self.record_count != self.last_offset_delta + 1:
            raise ProtocolError(
                f"batch has {self.record_count} records for {self.last_offset_delta + 1} offsets",
                code=ErrorCode.INVALID_RECORD,
            )

    def restamp(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
        """Write the batch's place in the log into the buffer, which must be writable."""
        _BASE_OFFSET.pack_into(self.raw, 0, base_offset)
        _LEADER_EPOCH.pack_into(self.raw, LEADER_EPOCH_AT, leader_epoch)
        self.base_offset = base_offset
        self.partition_leader_epoch = leader_epoch

    def stamp_log_append_time(self, timestamp_ms: int) -> None:
        """Set LogAppendTime with the broker's time, and a new CRC, in a writable buffer.

        The new CRC covers the current bytes: check the old CRC first, or damage
        becomes undetectable.
        """
        self.attributes |= LOG_APPEND_TIME_BIT
        _ATTRIBUTES.pack_into(self.raw, ATTRIBUTES_AT, self.attributes)
        self.stamp_max_timestamp(timestamp_ms)

    def stamp_max_timestamp(self, timestamp_ms: int) -> None:
        """Write the max timestamp and a new CRC into the buffer, which must be writable."""
        self.max_timestamp_ms = timestamp_ms
        _MAX_TIMESTAMP.pack_into(self.raw, _MAX_TIMESTAMP_AT, timestamp_ms)
        self.crc = write_crc(self.raw)


def write_crc(raw: memoryview) -> int:
    """Sum one whole batch, write the checksum into its header, and return it."""
    checksum = crc32c(raw[_CHECKED_FROM:])
    _CRC.pack_into(raw, _CRC_AT, checksum)
    return checksum


def batch_at(buffer: Buffer, position: int = 0) -> RecordBatch:
    """Read the batch that begins at this position; more may follow it in the buffer."""
    view = memoryview(buffer)
    assert 0 <= position <= len(view), position
    if len(view) - position < HEADER_BYTES:
        raise _header_error(view[position:])
    length: int
    (length,) = _LENGTH.unpack_from(view, position + _LENGTH_AT)
    # A slice ends with the buffer and has room for a header: lengths that do not fit are found out.
    return RecordBatch(view[position : position + max(length + LOG_OVERHEAD_BYTES, HEADER_BYTES)])


def batches(buffer: Buffer) -> Iterator[RecordBatch]:
    """Yield the adjacent batches in the buffer.

    A fetch response may end in the middle of a batch, so an incomplete batch at the
    end is left out. A header that cannot be right raises ProtocolError once it is reached.
    """
    view = memoryview(buffer)
    position = 0
    while len(view) - position >= LOG_OVERHEAD_BYTES:
        length: int
        (length,) = _LENGTH.unpack_from(view, position + _LENGTH_AT)
        if length + LOG_OVERHEAD_BYTES > len(view) - position:
            return
        batch = batch_at(view, position)
        yield batch
        position += batch.size_bytes


def _header_error(raw: memoryview) -> ProtocolError:
    """Return the error for bytes that do not begin with a header: too short, or another format."""
    magic = raw[MAGIC_AT] if len(raw) > MAGIC_AT else MAGIC
    if magic == MAGIC:
        return _corrupt(f"batch has {len(raw)} bytes, its header alone needs {HEADER_BYTES}")
    if magic > MAGIC:
        return _corrupt(f"batch has unknown magic {magic}")
    return ProtocolError(
        f"message has magic {magic}, older than record batches",
        code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    )


def _corrupt(detail: str) -> ProtocolError:
    return ProtocolError(detail, code=ErrorCode.CORRUPT_MESSAGE)
