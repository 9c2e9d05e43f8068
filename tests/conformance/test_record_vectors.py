"""Record bytes in every format and codec: theirs are read here, and ours are read there."""

import struct

import pytest

from ottla.wire.records.batch import batch_at, batches
from ottla.wire.records.builder import build_batch
from ottla.wire.records.compression import lz4_header
from ottla.wire.records.compression.codecs import Compression, compression_in
from ottla.wire.records.message_set import records_of_message_set, to_batches, to_message_set
from ottla.wire.records.record import Record, RecordHeader, records_of
from tests.conformance.record_clients import (
    Aiokafka,
    KafkaPython,
    Librdkafka,
    RecordClient,
    Served,
)

ATTRIBUTES_AT = {0: 17, 1: 17, 2: 22}
CLIENTS: dict[str, RecordClient] = {
    "librdkafka": Librdkafka(),
    "kafka-python": KafkaPython(),
    "aiokafka": Aiokafka(),
}
FORMATS = [
    (magic, codec)
    for magic in (0, 1, 2)
    for codec in Compression
    if magic == 2 or codec is not Compression.ZSTD
]
VECTORS = [
    (client, magic, codec)
    for client in CLIENTS
    for magic, codec in FORMATS
    # The other two clients refuse this case, or need a library that is not installed here.
    if client == "librdkafka" or (magic, codec) != (0, Compression.LZ4)
]
OLD_VECTORS = [(client, magic, codec) for client, magic, codec in VECTORS if magic < 2]


def name_of(value: object) -> str:
    return value.config_name if isinstance(value, Compression) else str(value)


each_vector = pytest.mark.parametrize(("client", "magic", "codec"), VECTORS, ids=name_of)
each_old_vector = pytest.mark.parametrize(("client", "magic", "codec"), OLD_VECTORS, ids=name_of)


def noise(size_bytes: int) -> bytes:
    return b"".join(struct.pack(">I", i * 2654435761 % 2**32) for i in range(size_bytes // 4))


RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value"),
    Record(1, 1_700_000_000_007, None, b"no key"),
    Record(2, 1_699_999_999_000, b"no value, and earlier", None),
    Record(3, 1_700_000_000_007, b"larger than a block", b"snappy " * 10_000),
    Record(4, 1_700_000_000_008, b"hard to compress", noise(100_000)),
    Record(5, 1_700_000_000_008, b"headers", b"", (RecordHeader("trace", b"\x00\xff"),)),
    Record(
        6,
        1_700_000_000_009,
        b"odd headers",
        "Grüße".encode(),
        (RecordHeader("größe", None), RecordHeader("", b""), RecordHeader("größe", b"2")),
    ),
    *(Record(7 + i, 1_700_000_000_010 + i, b"%d" % (i % 7), b"v%d" % i) for i in range(300)),
]


def expected(records: list[Record], magic: int) -> list[Record]:
    if magic == 2:
        return records
    bare = [record._replace(headers=()) for record in records]
    return bare if magic == 1 else [record._replace(timestamp_ms=-1) for record in bare]


def read_here(raw: bytes, magic: int) -> list[Record]:
    if magic < 2:
        return records_of_message_set(raw)
    found = []
    for batch in batches(raw):
        batch.check_crc()
        found += records_of(batch)
    return found


def write_here(records: list[Record], magic: int, codec: Compression) -> Served:
    if magic == 2:
        raw = bytes(build_batch(records, compression=codec))
    else:
        raw = to_message_set(records, magic=magic, compression=codec)
    return Served(raw, magic, len(records), records[-1].offset + 1)


def renumbered(records: list[Record]) -> list[Record]:
    return [record._replace(offset=offset) for offset, record in enumerate(records)]


@each_vector
def test_what_they_write_is_read_here(client: str, magic: int, codec: Compression) -> None:
    given = expected(RECORDS, magic)
    sets = CLIENTS[client].write(given, magic, codec)
    assert [raw[16] for raw in sets] == [magic] * len(sets)
    assert [compression_in(raw[ATTRIBUTES_AT[magic]]) for raw in sets] == [codec] * len(sets)
    assert renumbered([record for raw in sets for record in read_here(raw, magic)]) == given


@each_vector
def test_what_is_written_here_they_read(client: str, magic: int, codec: Compression) -> None:
    served = write_here(RECORDS, magic, codec)
    assert CLIENTS[client].read(served) == expected(RECORDS, magic)


@each_vector
def test_they_read_offsets_with_gaps(client: str, magic: int, codec: Compression) -> None:
    kept = [RECORDS[index] for index in (1, 2, 5, 6, 100)]
    served = write_here(kept, magic, codec)
    assert CLIENTS[client].read(served) == expected(kept, magic)


@each_old_vector
def test_they_read_their_old_formats_when_converted(
    client: str, magic: int, codec: Compression
) -> None:
    given = expected(RECORDS, magic)
    made: list[bytearray] = []
    for view in CLIENTS[client].write(given, magic, codec):
        offset = batch_at(made[-1]).end_offset if made else 0
        made += to_batches(view, base_offset=offset)
    assert {batch_at(raw).compression for raw in made} == {codec}
    served = Served(b"".join(made), 2, len(given), len(given))
    assert CLIENTS[client].read(served) == given


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_they_read_the_broker_s_time(client: str, codec: Compression) -> None:
    given = [record._replace(timestamp_ms=1_800_000_000_000) for record in expected(RECORDS, 1)]
    old = to_message_set(given, magic=1, compression=codec, is_log_append_time=True)
    assert CLIENTS[client].read(Served(old, 1, len(given), len(given))) == given
    (new,) = to_batches(old)
    assert CLIENTS[client].read(Served(bytes(new), 2, len(given), len(given))) == given


def test_librdkafka_makes_the_same_mistake_in_lz4_headers() -> None:
    raw, *_ = Librdkafka().write(RECORDS[:1] * 100, 0, Compression.LZ4)
    frame = raw[raw.index(lz4_header.FRAME_MAGIC) :]
    assert lz4_header.with_wrong_header_checksum(frame) == frame
    assert lz4_header.with_right_header_checksum(frame) != frame


def test_snappy_comes_both_bare_and_in_xerial_s_framing() -> None:
    """So that both forms are among the vectors above."""
    framed = {
        client: b"\x82SNAPPY\x00" in CLIENTS[client].write(RECORDS, 2, Compression.SNAPPY)[0]
        for client in CLIENTS
    }
    assert framed == {"librdkafka": False, "kafka-python": True, "aiokafka": True}
