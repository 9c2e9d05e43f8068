"""Malformed record batches with a correct CRC, as faulty or hostile producers may send them.

`MALFORMED` names each case. Damage to records is made before compression, once with each codec; the
other cases damage the header or the compressed bytes.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.wire.records.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
    write_crc,
)
from ottla.wire.records.compression.codecs import Compression, compress

NOW_MS: Final = 1_700_000_000_000
KEY: Final = b"key"
VALUE: Final = b"a value that repeats itself, repeats itself, repeats itself"
HEADERS: Final = ((b"trace", b"on"), (b"empty", None))
COUNT: Final = 3
CODECS: Final = tuple(codec for codec in Compression if codec is not Compression.NONE)

LENGTH: Final = (">i", 8)
ATTRIBUTES: Final = (">h", 21)
LAST_OFFSET_DELTA: Final = (">i", 23)
PRODUCER_ID: Final = (">q", 43)
PRODUCER_EPOCH: Final = (">h", 51)
BASE_SEQUENCE: Final = (">i", 53)
RECORD_COUNT: Final = (">i", 57)
Field = tuple[str, int]


class Malformed(NamedTuple):
    """One case: a batch, and the error code that Ottla refuses it with."""

    name: str
    batch: bytes
    code: ErrorCode = ErrorCode.INVALID_RECORD


def number(value: int) -> bytes:
    """Write a zigzag varint."""
    bits = value << 1 if value >= 0 else (-value << 1) - 1
    septets = bytearray()
    while bits > 0x7F:
        septets.append(bits & 0x7F | 0x80)
        bits >>= 7
    septets.append(bits)
    return bytes(septets)


def sized(data: bytes | None) -> bytes:
    """Write a key or value with its length."""
    return number(-1) if data is None else number(len(data)) + data


def fields(
    delta: int = 0,
    *,
    time: bytes = number(0),
    key: bytes = sized(KEY),
    value: bytes = sized(VALUE),
    headers: bytes | None = None,
) -> bytes:
    """Encode the part of a record after its length."""
    if headers is None:
        headers = number(len(HEADERS)) + b"".join(sized(k) + sized(v) for k, v in HEADERS)
    return b"\0" + time + number(delta) + key + value + headers


def record(delta: int = 0, **damage: bytes) -> bytes:
    """Write a record, with fields replaced by others."""
    return sized(fields(delta, **damage))


def with_last(last: bytes) -> bytes:
    """Write two sound records and then these bytes."""
    return record(0) + record(1) + last


def batch_of(
    section: bytes, codec: Compression = Compression.NONE, *changes: tuple[Field, int]
) -> bytes:
    """Put a section that is compressed already into a batch of three records, and sum it."""
    raw = bytearray(HEADER_BYTES) + section
    HEADER.pack_into(
        raw,
        0,
        0,  # base offset
        len(raw) - LOG_OVERHEAD_BYTES,
        -1,  # leader epoch
        MAGIC,
        0,  # CRC
        codec,
        COUNT - 1,
        NOW_MS,
        NOW_MS,
        -1,  # producer id
        -1,  # producer epoch
        -1,  # base sequence
        COUNT,
    )
    for (layout, position), value in changes:
        struct.pack_into(layout, raw, position, value)
    write_crc(memoryview(raw))
    return bytes(raw)


SOUND: Final = record(0) + record(1) + record(2)

_MALFORMED_SECTIONS: Final[dict[str, bytes]] = {
    "no records": b"",
    "one record fewer than the header counts": record(0) + record(1),
    "one record more than the header counts": SOUND + record(3),
    "the same offset delta twice": record(0) + record(1) + record(1),
    "a gap in the offset deltas": record(0) + record(1) + record(7),
    "offset deltas that begin at 1": record(1) + record(2) + record(3),
    "falling offset deltas": record(2) + record(1) + record(0),
    "a negative offset delta": record(-1) + record(0) + record(1),
    "an offset delta of 32 bits and more": with_last(record(1 << 31)),
    "a negative record length": with_last(number(-1) + fields(2)),
    "a record length of 0": with_last(number(0)),
    "a record length of 1": with_last(number(1) + b"\0"),
    "a record length past the end": with_last(number(len(fields(2)) + 1) + fields(2)),
    "a record length of 2 GiB": with_last(number((1 << 31) - 1) + fields(2)),
    "a record length that is too short": with_last(number(len(fields(2)) - 1) + fields(2)),
    "a record length of six bytes": with_last(b"\xff" * 5 + b"\x01" + fields(2)),
    "the last record cut off": SOUND[:-1],
    "the last record cut off inside its length": with_last(b"\x80"),
    "a byte after the fields of a record": with_last(sized(fields(2) + b"\0")),
    "a byte after the last record": SOUND + b"\0",
    "a timestamp delta of eleven bytes": with_last(record(2, time=b"\xff" * 10 + b"\x01")),
    "a key longer than its record": with_last(record(2, key=number(1000) + KEY)),
    "a key of 2 GiB": with_last(record(2, key=number((1 << 31) - 1) + KEY)),
    "a key length of -2": with_last(record(2, key=number(-2))),
    "a value longer than its record": with_last(record(2, value=number(1000) + VALUE)),
    "a value length of -2": with_last(record(2, value=number(-2))),
    "a value that ends where the record does": with_last(record(2, headers=b"")),
    "a negative header count": with_last(record(2, headers=number(-1))),
    "a header count of 2 GiB": with_last(record(2, headers=number((1 << 31) - 1))),
    "one header fewer than counted": with_last(record(2, headers=number(2) + sized(b"h") * 2)),
    "one header more than counted": with_last(record(2, headers=number(1) + sized(b"h") * 4)),
    "a header key of null": with_last(record(2, headers=number(1) + sized(None) + sized(b"v"))),
    "a header key longer than its record": with_last(
        record(2, headers=number(1) + number(1000) + b"h" + sized(b"v"))
    ),
    "a header value longer than its record": with_last(
        record(2, headers=number(1) + sized(b"h") + number(1000) + b"v")
    ),
    "a header value length of -2": with_last(
        record(2, headers=number(1) + sized(b"h") + number(-2))
    ),
    "a header key that is not UTF-8": with_last(
        record(2, headers=number(1) + sized(b"\xff\xfe") + sized(b"v"))
    ),
    "a header key with a surrogate": with_last(
        record(2, headers=number(1) + sized(b"\xed\xa0\x80") + sized(b"v"))
    ),
}


def _of_records() -> Iterator[Malformed]:
    for codec in Compression:
        for name, section in _MALFORMED_SECTIONS.items():
            yield Malformed(
                f"{codec.config_name}: {name}", batch_of(compress(codec, section), codec)
            )
        time = number((1 << 63) - 1)
        section = with_last(record(2, time=time))
        yield Malformed(
            f"{codec.config_name}: a timestamp beyond 64 bits",
            batch_of(compress(codec, section), codec),
            ErrorCode.INVALID_TIMESTAMP,
        )


def _of_counts() -> Iterator[Malformed]:
    for codec in Compression:
        section = compress(codec, SOUND)
        for name, last, count in (
            ("more records than offsets", 1, 3),
            ("fewer records than offsets", 5, 3),
            ("a count of 0", 2, 0),
            ("a count of 0 and no offsets", -1, 0),
            ("a negative count", 2, -1),
            ("a negative last offset delta", -3, 3),
            ("a count of 2 GiB", (1 << 31) - 2, (1 << 31) - 1),
        ):
            yield Malformed(
                f"{codec.config_name}: {name}",
                batch_of(section, codec, (LAST_OFFSET_DELTA, last), (RECORD_COUNT, count)),
            )


def _of_headers() -> Iterator[Malformed]:
    for codec in (5, 6, 7):
        yield Malformed(
            f"codec {codec}",
            batch_of(SOUND, Compression.NONE, (ATTRIBUTES, codec)),
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
    producer = (PRODUCER_ID, 4000), (PRODUCER_EPOCH, 0), (BASE_SEQUENCE, 0)
    bits = {
        "a control batch": CONTROL_BIT,
        "a delete horizon": DELETE_HORIZON_BIT,
        "LogAppendTime": LOG_APPEND_TIME_BIT,
    }
    for name, bit in bits.items():
        is_time = bit == LOG_APPEND_TIME_BIT
        yield Malformed(
            name,
            batch_of(SOUND, Compression.NONE, (ATTRIBUTES, bit)),
            ErrorCode.INVALID_TIMESTAMP if is_time else ErrorCode.INVALID_RECORD,
        )
    for name, bit in (("a transaction", 0), ("a transaction's control batch", CONTROL_BIT)):
        yield Malformed(
            f"{name} without a transactional id",
            batch_of(SOUND, Compression.NONE, (ATTRIBUTES, TRANSACTIONAL_BIT | bit), *producer),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        )
    yield Malformed(
        "a producer without a sequence",
        batch_of(SOUND, Compression.NONE, *producer[:2], (BASE_SEQUENCE, -1)),
    )
    yield Malformed(
        "a producer without an epoch",
        batch_of(SOUND, Compression.NONE, producer[0], (PRODUCER_EPOCH, -1), producer[2]),
    )


def _of_framing() -> Iterator[Malformed]:
    sound = batch_of(SOUND)
    corrupt = ErrorCode.CORRUPT_MESSAGE
    yield Malformed("magic 3", _with_magic(3), corrupt)
    yield Malformed("magic 1", _with_magic(1))
    yield Malformed("magic 0", _with_magic(0))
    yield Malformed("two batches", sound + sound)
    yield Malformed("a byte after the batch", sound + b"\0")
    yield Malformed(
        "a size one too large", batch_of(SOUND, Compression.NONE, (LENGTH, len(sound) - 11))
    )
    yield Malformed(
        "a size one too small",
        batch_of(SOUND, Compression.NONE, (LENGTH, len(sound) - 13)),
        corrupt,
    )
    yield Malformed("a negative size", batch_of(SOUND, Compression.NONE, (LENGTH, -1)), corrupt)
    yield Malformed("a header without its last byte", sound[: HEADER_BYTES - 1])
    yield Malformed("less than a header's length", sound[:5])
    yield Malformed("no batch", b"")


def _with_magic(magic: int) -> bytes:
    raw = bytearray(batch_of(SOUND))
    raw[MAGIC_AT] = magic
    return bytes(raw)


def _of_compressed_bytes() -> Iterator[Malformed]:
    for codec in CODECS:
        name = codec.config_name
        whole = compress(codec, SOUND * 40)  # not sound itself: too many records
        sound = compress(codec, SOUND)
        flipped = bytearray(whole)
        flipped[len(flipped) // 2] ^= 0x55
        others = [other for other in CODECS if other is not codec]
        yield Malformed(f"{name}: not compressed at all", batch_of(SOUND, codec))
        yield Malformed(f"{name}: no bytes", batch_of(b"", codec))
        yield Malformed(f"{name}: one byte", batch_of(sound[:1], codec))
        yield Malformed(f"{name}: cut in half", batch_of(sound[: len(sound) // 2], codec))
        yield Malformed(f"{name}: flipped bits", batch_of(bytes(flipped), codec))
        yield Malformed(f"{name}: bytes behind the end", batch_of(sound + b"\0\0\0", codec))
        yield Malformed(
            f"{name}: in fact {others[0].config_name}", batch_of(compress(others[0], SOUND), codec)
        )
        yield Malformed(f"{name}: said to be uncompressed", batch_of(sound, Compression.NONE))


def bombs() -> Iterator[Malformed]:
    """Yield batches that decompress to more than Ottla allows; Kafka has no such limit."""
    for codec, size_bytes in (
        (Compression.GZIP, 129 << 20),
        (Compression.LZ4, 129 << 20),
        (Compression.ZSTD, 17 << 20),
    ):
        section = compress(codec, record(0, value=sized(bytes(size_bytes))))
        yield Malformed(
            f"{codec.config_name}: {size_bytes} zeros",
            batch_of(section, codec, (LAST_OFFSET_DELTA, 0), (RECORD_COUNT, 1)),
        )


_FAMILIES: Final[tuple[Callable[[], Iterator[Malformed]], ...]] = (
    _of_records,
    _of_counts,
    _of_headers,
    _of_framing,
    _of_compressed_bytes,
)
MALFORMED: Final = tuple(case for family in _FAMILIES for case in family())
