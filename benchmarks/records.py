"""Record batches: built, checked and read, against aiokafka's compiled record code.

A batch has a thousand records, each with a value of 100 bytes and no key.
"""

from collections.abc import Iterator
from functools import partial

from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder

from benchmarks.comparison import GIGABYTES, MILLION_BATCHES, MILLION_RECORDS, Case, Peer
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.record import Record, records_of, scan_records

TITLE = "Record batches, beside aiokafka's compiled code"
RECORDS = 1000
VALUES = [b"x" * 100] * RECORDS
NOW_MS = 1_700_000_000_000


def cases() -> Iterator[Case]:
    """Yield the work on record batches."""
    yield from _building()
    yield from _reading(bytes(build()))
    large = one_large_batch()
    yield Case(
        work="check the CRC of a batch of 1 MB, restamp it",
        unit=GIGABYTES,
        ours=partial(check_and_restamp, large),
        amount=len(large),
        asked=8,
    )
    yield Case(
        work="parse and restamp a header",
        unit=MILLION_BATCHES,
        ours=partial(restamp, memoryview(build())),
    )


def _building() -> Iterator[Case]:
    assert build() == build_in_bulk() == build_by_aiokafka()
    yield Case(
        work="build, one call a record",
        unit=MILLION_RECORDS,
        ours=build,
        amount=RECORDS,
        asked=2,
        peers=(Peer("aiokafka", build_by_aiokafka, 1),),
    )
    yield Case(
        work="build, one call a batch",
        unit=MILLION_RECORDS,
        ours=build_in_bulk,
        amount=RECORDS,
        peers=(Peer("aiokafka", build_by_aiokafka),),
    )


def _reading(raw: bytes) -> Iterator[Case]:
    batch = RecordBatch(memoryview(raw))
    theirs = [(record.offset, record.timestamp, record.value) for record in AiokafkaBatch(raw)]
    assert theirs == [(record.offset, record.timestamp_ms, record.value) for record in read(raw)]
    yield Case(
        work="read all records (no CRC)",
        unit=MILLION_RECORDS,
        ours=partial(read, raw),
        amount=RECORDS,
        peers=(Peer("aiokafka", lambda: list(AiokafkaBatch(raw))),),
    )
    yield Case(
        work="look at all records, build none",
        unit=MILLION_RECORDS,
        ours=partial(scan_records, batch.records_view, RECORDS),
        amount=RECORDS,
    )


def build() -> bytearray:
    """Build a batch by one append for each record."""
    builder = BatchBuilder()
    for value in VALUES:
        builder.append(NOW_MS, None, value)
    return builder.build()


def build_in_bulk() -> bytearray:
    """Build the same batch by one extend."""
    builder = BatchBuilder()
    builder.extend(NOW_MS, VALUES)
    return builder.build()


def build_by_aiokafka() -> bytearray:
    """Build the same batch with aiokafka's compiled builder."""
    builder = AiokafkaBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for offset, value in enumerate(VALUES):
        builder.append(offset, NOW_MS, None, value, [])
    built: bytearray = builder.build()
    return built


def read(raw: bytes) -> list[Record]:
    """Read all records of a batch."""
    return records_of(RecordBatch(memoryview(raw)))


def one_large_batch() -> memoryview:
    """Build a batch of about a megabyte in memory that can be written to."""
    builder = BatchBuilder()
    builder.extend(NOW_MS, [b"x" * 1000] * 1035)
    return memoryview(builder.build())


def check_and_restamp(raw: memoryview) -> None:
    """Process a produced batch as a broker does before it appends it."""
    batch = RecordBatch(raw)
    batch.check_crc()
    batch.check_gapless()
    batch.restamp(42, 3)


def restamp(raw: memoryview) -> None:
    """Do the same without the checksum."""
    RecordBatch(raw).restamp(42, 3)
