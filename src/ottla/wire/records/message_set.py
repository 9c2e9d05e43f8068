"""Message sets: the layout of records before record batches (magic 0 and 1).

    offset int64 | size int32 | CRC-32 | magic int8 | attributes int8 | timestamp int64 | key, value

The CRC covers everything after it. Magic 0 has no timestamp. Key and value are an int32 length and
as many bytes, -1 for null. The attributes hold the codec (bits 0-2) and, in magic 1, whether the
timestamp is the broker's (bit 3). A compressed message has a set as its value, one level deep:

    magic   inner offsets        offset of the wrapper    timestamps
    0       absolute             last inner offset        none
    1       relative to first    last inner offset        the wrapper's if bit 3 is set, else inner

Left out on purpose: headers, transactions and Zstandard, which these formats do not have.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.builder import build_batch
from ottla.wire.records.compression.codecs import (
    CODEC_MASK,
    DECOMPRESSED_BYTES_MAX,
    Compression,
    compress,
    compression_in,
    decompress,
)
from ottla.wire.records.compression.inflation import Buffer
from ottla.wire.records.compression.lz4_header import (
    with_right_header_checksum,
    with_wrong_header_checksum,
)
from ottla.wire.records.record import Record

COMPRESSED_COUNT_FREE = 20_000
COMPRESSED_BYTES_MEAN_MIN = 8
"""Past the first twenty thousand, compressed messages must be this large on average: each of them
costs far more memory as a record than equal ones take up in a compressed set."""
NO_TIMESTAMP = -1
LOG_APPEND_TIME_BIT = 0x08
OFFSET_SPAN_MAX = 1 << 31
"""The largest span of offsets in one record batch."""
TIMESTAMP_DELTA_MS_MAX = (1 << 63) - 1

_FRAME = Struct(">qi")
_CRC = Struct(">I")
_MAGIC_AND_ATTRIBUTES = Struct(">bb")
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")
_CHECKED_FROM = _FRAME.size + _CRC.size
_FIELDS_FROM = _CHECKED_FROM + _MAGIC_AND_ATTRIBUTES.size
_SIZE_BYTES_MIN = _CRC.size + _MAGIC_AND_ATTRIBUTES.size + 2 * _LENGTH.size


class _Message(NamedTuple):
    offset: int
    magic: int
    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def log_append_time_ms(self) -> int | None:
        is_broker_time = self.magic > 0 and self.attributes & LOG_APPEND_TIME_BIT
        return self.timestamp_ms if is_broker_time else None


class _Run(NamedTuple):
    """Neighbours that can share a record batch."""

    compression: Compression
    log_append_time_ms: int | None
    records: list[Record]


def records_of_message_set(
    view: Buffer,
    *,
    is_cut_off_allowed: bool = False,
    size_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> list[Record]:
    """Read all records, checking every CRC; ProtocolError says which byte is wrong, and how.

    A fetch response may break off inside its last message, which is then left out; say so by
    `is_cut_off_allowed`. The compressed messages of the set may hold `size_bytes_max` together.
    The limits above also restrict their number.
    """
    runs = _runs(memoryview(view), is_cut_off_allowed, size_bytes_max)
    return [record for run in runs for record in run.records]


def to_batches(
    view: Buffer,
    *,
    base_offset: int | None = None,
    size_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> list[bytearray]:
    """Convert a whole set to record batches with the same codecs and kinds of timestamps.

    A compressed message becomes a batch of its own; others share one while they can. Producers
    number their messages as they like: with `base_offset` the records are numbered from there;
    without, they keep their offsets, and ProtocolError is raised where these do not rise.
    """
    runs = _joined(_runs(memoryview(view), False, size_bytes_max))
    if base_offset is not None:
        runs = _renumbered(runs, base_offset)
    _check_convertible(runs)
    return [
        build_batch(
            run.records,
            compression=run.compression,
            log_append_time_ms=run.log_append_time_ms,
        )
        for run in runs
    ]


def to_message_set(
    records: Iterable[Record],
    *,
    magic: int,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    is_log_append_time: bool = False,
) -> bytes:
    """Write a set of records with increasing offsets, without their headers; b"" if there are none.

    Compressed, it is one message around all of them. Clients that need this format cannot read
    Zstandard, so it is not allowed as `codec`.
    """
    assert magic in {0, 1}, magic
    assert compression is not Compression.ZSTD, "message sets know no Zstandard"
    attributes = LOG_APPEND_TIME_BIT if magic and is_log_append_time else 0
    is_relative = magic == 1 and compression is not Compression.NONE
    base_offset = last_offset = 0
    timestamp_ms = NO_TIMESTAMP
    messages: list[bytes] = []
    for record in records:
        last_offset = record.offset
        if is_relative and not messages:
            base_offset = last_offset
        messages.append(_encoded(last_offset - base_offset, magic, attributes, record))
        timestamp_ms = max(timestamp_ms, record.timestamp_ms)
    if not messages or compression is Compression.NONE:
        return b"".join(messages)
    content = compress(compression, b"".join(messages), compression_level)
    if magic == 0 and compression is Compression.LZ4:
        content = with_wrong_header_checksum(content)
    around = Record(last_offset, timestamp_ms, None, content)
    return _encoded(last_offset, magic, attributes | compression, around)


def _encoded(offset: int, magic: int, attributes: int, record: Record) -> bytes:
    checked = b"".join(
        (
            _MAGIC_AND_ATTRIBUTES.pack(magic, attributes),
            _TIMESTAMP.pack(record.timestamp_ms) if magic else b"",
            _encoded_bytes(record.key),
            _encoded_bytes(record.value),
        )
    )
    frame = _FRAME.pack(offset, _CRC.size + len(checked))
    return b"".join((frame, _CRC.pack(crc32(checked)), checked))


def _encoded_bytes(content: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if content is None else _LENGTH.pack(len(content)) + content


def _runs(view: memoryview, is_cut_off_allowed: bool, size_bytes_max: int) -> Iterator[_Run]:
    count_max = COMPRESSED_COUNT_FREE + len(view) // COMPRESSED_BYTES_MEAN_MIN
    for position, message in _messages(view, is_cut_off_allowed):
        codec = compression_in(message.attributes)
        if codec is Compression.NONE:
            record = Record(message.offset, message.timestamp_ms, message.key, message.value)
            yield _Run(codec, message.log_append_time_ms, [record])
            continue
        content = _content(position, message, codec, size_bytes_max)
        size_bytes_max -= len(content)
        records = _inner_records(position, message, content, count_max)
        count_max -= len(records)
        yield _Run(codec, message.log_append_time_ms, records)


def _content(
    position: int, message: _Message, codec: Compression, size_bytes_max: int
) -> bytes | memoryview:
    if codec is Compression.ZSTD:
        raise ProtocolError(
            f"message at byte {position}: Zstandard in magic {message.magic}",
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
    if message.value is None:
        raise _corrupt(position, "compressed, but its value is null")
    content = message.value
    if message.magic == 0 and codec is Compression.LZ4:
        content = with_right_header_checksum(content)
    return decompress(codec, content, size_bytes_max=size_bytes_max)


def _inner_records(
    position: int, around: _Message, content: Buffer, count_max: int
) -> list[Record]:
    broker_time_ms = around.log_append_time_ms
    records: list[Record] = []
    try:
        for inner_position, message in _messages(memoryview(content), False):
            _check_inner(inner_position, message, around)
            if len(records) == count_max:
                raise _corrupt(inner_position, "too many small messages")
            timestamp_ms = message.timestamp_ms if broker_time_ms is None else broker_time_ms
            records.append(Record(message.offset, timestamp_ms, message.key, message.value))
    except ProtocolError as error:
        raise _corrupt(position, f"inside it, {error.detail}") from None
    if not records:
        raise _corrupt(position, "compressed, but nothing is in it")
    return _with_absolute_offsets(position, around, records)


def _check_inner(position: int, message: _Message, around: _Message) -> None:
    if message.magic != around.magic:
        raise _corrupt(position, f"magic {message.magic} inside magic {around.magic}")
    if message.attributes & CODEC_MASK:
        raise _corrupt(position, "compressed, inside a compressed message")


def _with_absolute_offsets(position: int, around: _Message, records: list[Record]) -> list[Record]:
    last_offset = records[-1].offset
    base_offset = around.offset - last_offset
    if around.magic == 0 or base_offset <= 0:
        # They are absolute, or from a producer, which need not number the message around them.
        return records
    if any(record.offset > last_offset for record in records):
        raise _corrupt(position, "the last offset inside it is not the largest")
    return [
        Record(base_offset + record.offset, record.timestamp_ms, record.key, record.value)
        for record in records
    ]


def _messages(view: memoryview, is_cut_off_allowed: bool) -> Iterator[tuple[int, _Message]]:
    position = 0
    while position < len(view):
        rest_bytes = len(view) - position - _FRAME.size
        offset, size_bytes = _FRAME.unpack_from(view, position) if rest_bytes >= 0 else (0, 0)
        if rest_bytes < max(size_bytes, 0):
            if is_cut_off_allowed:
                return
            raise _corrupt(position, f"breaks off after {rest_bytes + _FRAME.size} bytes")
        if size_bytes < _SIZE_BYTES_MIN:
            raise _corrupt(position, f"its size is {size_bytes}")
        end = position + _FRAME.size + size_bytes
        yield position, _message(position, offset, view[position:end])
        position = end


def _message(position: int, offset: int, raw: memoryview) -> _Message:
    (crc,) = _CRC.unpack_from(raw, _FRAME.size)
    if crc32(raw[_CHECKED_FROM:]) != crc:
        raise _corrupt(position, "its CRC does not match its bytes")
    magic, attributes = _MAGIC_AND_ATTRIBUTES.unpack_from(raw, _CHECKED_FROM)
    if magic not in {0, 1}:
        raise _corrupt(position, f"magic {magic} in a message set")
    fields_at = _FIELDS_FROM
    timestamp_ms = NO_TIMESTAMP
    if magic:
        # The smallest size has room for it: the lengths of key and value are found missing below.
        (timestamp_ms,) = _TIMESTAMP.unpack_from(raw, fields_at)
        fields_at += _TIMESTAMP.size
        if timestamp_ms < NO_TIMESTAMP:
            raise _corrupt(position, f"its timestamp is {timestamp_ms}")
    key, value_at = _bytes_at(position, raw, fields_at)
    value, end = _bytes_at(position, raw, value_at)
    if end != len(raw):
        raise _corrupt(position, f"{len(raw) - end} bytes follow its value")
    return _Message(offset, magic, attributes, timestamp_ms, key, value)


def _bytes_at(position: int, raw: memoryview, start: int) -> tuple[bytes | None, int]:
    content_at = start + _LENGTH.size
    if content_at > len(raw):
        raise _corrupt(position, "ends inside a length")
    (length,) = _LENGTH.unpack_from(raw, start)
    if length == -1:
        return None, content_at
    if not 0 <= length <= len(raw) - content_at:
        raise _corrupt(position, f"key or value of {length} bytes in a message of {len(raw)}")
    return bytes(raw[content_at : content_at + length]), content_at + length


def _joined(runs: Iterable[_Run]) -> list[_Run]:
    joined: list[_Run] = []
    for run in runs:
        if joined and run.compression is Compression.NONE and run[:2] == joined[-1][:2]:
            joined[-1].records.extend(run.records)
        else:
            joined.append(run)
    return joined


def _renumbered(runs: Iterable[_Run], base_offset: int) -> list[_Run]:
    renumbered = []
    for run in runs:
        records = [
            Record(offset, record.timestamp_ms, record.key, record.value)
            for offset, record in enumerate(run.records, base_offset)
        ]
        renumbered.append(run._replace(records=records))
        base_offset += len(records)
    return renumbered


def _check_convertible(runs: Iterable[_Run]) -> None:
    end_offset = 0
    for run in runs:
        first = run.records[0]
        for record in run.records:
            if record.offset < end_offset:
                raise _unfit(f"offset {record.offset} comes where {end_offset} is the least")
            end_offset = record.offset + 1
        if end_offset - first.offset > OFFSET_SPAN_MAX:
            raise _unfit(f"offsets {first.offset} to {end_offset - 1} do not fit into one batch")
        last_ms = max(record.timestamp_ms for record in run.records)
        if last_ms - first.timestamp_ms > TIMESTAMP_DELTA_MS_MAX:
            raise _unfit(f"timestamps {first.timestamp_ms} and {last_ms} are too far apart")


def _unfit(what: str) -> ProtocolError:
    return ProtocolError(f"message set: {what}", ErrorCode.CORRUPT_MESSAGE)


def _corrupt(position: int, what: str) -> ProtocolError:
    return ProtocolError(f"message at byte {position}: {what}", ErrorCode.CORRUPT_MESSAGE)
