"""Records to Arrow and back, compiled and plain, against aiokafka's compiled record code.

A record has a key of 16 bytes and a value of 100. All seven columns of Spark's Kafka source are
made, and every checksum is verified.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder

from benchmarks.comparison import MILLION_RECORDS, Case, Peer
from ottla.wire.records import _arrow_python, _arrow_rows_python, arrow
from ottla.wire.records.batch import batches
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.record import records_of

TITLE = "Records to Arrow and back, beside aiokafka's compiled code and pyarrow"
NOW_MS = 1_700_000_000_000
RECORDS = 32_000
ROWS = pa.record_batch(
    {
        "key": pa.array([b"key-%012d" % index for index in range(RECORDS)]),
        "value": pa.array([b"x" * 100] * RECORDS),
        "timestamp": pa.array(
            range(NOW_MS * 1000, (NOW_MS + RECORDS) * 1000, 1000), pa.timestamp("us", "UTC")
        ),
    }
)


def cases() -> Iterator[Case]:
    """Yield the work on Arrow batches."""
    yield from _reading("1 MB", fetch_response(1 << 20), asked=10, asked_plain=0.2)
    yield from _reading("16 KB", fetch_response(16 << 10))
    yield Case(
        work="to Arrow, batches of 1 MB by lz4",
        unit=MILLION_RECORDS,
        ours=partial(read, fetch_response(1 << 20, Compression.LZ4)),
        amount=RECORDS,
    )
    yield from _writing()


def _reading(
    size: str, data: bytes, *, asked: float | None = None, asked_plain: float | None = None
) -> Iterator[Case]:
    assert read(data) == read_plainly(data) == read_by_aiokafka(data)
    yield Case(
        work=f"to Arrow, batches of {size}",
        unit=MILLION_RECORDS,
        ours=partial(read, data),
        amount=RECORDS,
        asked=asked,
        peers=(Peer("aiokafka", partial(read_by_aiokafka, data)),),
    )
    yield Case(
        work=f"to Arrow, batches of {size}, plain Python",
        unit=MILLION_RECORDS,
        ours=partial(read_plainly, data),
        amount=RECORDS,
        asked=asked_plain,
    )


def _writing() -> Iterator[Case]:
    assert write() == write_plainly()
    assert _contents(b"".join(write())) == _contents(write_by_aiokafka())
    yield Case(
        work="from Arrow",
        unit=MILLION_RECORDS,
        ours=write,
        amount=RECORDS,
        peers=(Peer("aiokafka", write_by_aiokafka),),
    )
    yield Case(
        work="from Arrow, plain Python",
        unit=MILLION_RECORDS,
        ours=write_plainly,
        amount=RECORDS,
    )


def fetch_response(batch_bytes: int, codec: Compression = Compression.NONE) -> bytes:
    """Encode all records in batches of this size, stamped as by a broker."""
    data = b"".join(
        arrow.from_arrow(ROWS, timestamp_ms=NOW_MS, batch_bytes_max=batch_bytes, compression=codec)
    )
    stored = bytearray(data)
    offset = 0
    for batch in batches(stored):
        batch.restamp(offset, 0)
        offset = batch.end_offset
    return bytes(stored)


def read(data: bytes) -> pa.RecordBatch:
    """Read it the way the Spark source does."""
    found = arrow.to_arrow(data, "orders", 3)
    assert found.num_rows == RECORDS
    return found


def read_plainly(data: bytes) -> pa.RecordBatch:
    """Read without the code compiled for Arrow."""
    with plain_python():
        return read(data)


def read_by_aiokafka(data: bytes) -> pa.RecordBatch:
    """Make the same Arrow batch out of aiokafka's records."""
    columns: tuple[list[Any], ...] = ([], [], [], [], [], [], [])
    for raw in [batch.raw.tobytes() for batch in batches(data)]:
        batch = AiokafkaBatch(raw)
        assert batch.validate_crc()
        for record in batch:
            for column, cell in zip(
                columns,
                (
                    record.key,
                    record.value,
                    "orders",
                    3,
                    record.offset,
                    record.timestamp * 1000,
                    record.timestamp_type,
                ),
                strict=True,
            ):
                column.append(cell)
    schema = arrow.schema()
    arrays = [pa.array(cells, kind) for cells, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def write() -> list[bytearray]:
    """Write all rows into batches of 1 MB."""
    return arrow.from_arrow(ROWS, timestamp_ms=NOW_MS)


def write_plainly() -> list[bytearray]:
    """Write without the code compiled for Arrow."""
    with plain_python():
        return write()


def write_by_aiokafka() -> bytearray:
    """Write all rows with aiokafka's builder, into one batch."""
    builder = AiokafkaBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    timestamps = ROWS["timestamp"].cast(pa.int64()).to_pylist()
    keys, values = ROWS["key"].to_pylist(), ROWS["value"].to_pylist()
    for offset, (key, value, timestamp_us) in enumerate(zip(keys, values, timestamps, strict=True)):
        builder.append(offset, timestamp_us // 1000, key, value, [])
    built: bytearray = builder.build()
    return built


@contextmanager
def plain_python() -> Iterator[None]:
    """Disable the code compiled for Arrow."""
    with (
        patch.object(arrow, "Columns", _arrow_python.Columns),
        patch.object(arrow, "Rows", _arrow_rows_python.Rows),
    ):
        yield


def _contents(data: bytes | bytearray) -> list[tuple[int, bytes | None, bytes | None]]:
    # Batches have other boundaries, so offsets are left out of the comparison.
    return [
        (record.timestamp_ms, record.key, record.value)
        for batch in batches(data)
        for record in records_of(batch)
    ]
