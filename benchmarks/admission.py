"""The admission of a produced batch of 16 KB before a broker writes it.

The batch has 150 records, each with a key of 4 and a value of 100 bytes, from an idempotent
producer. Then batches with a megabyte of records of two sizes, in each codec: every record is
validated, so a compressed batch costs its decompression.
"""

from collections.abc import Iterator
from functools import partial

from benchmarks.codecs import text_of
from benchmarks.comparison import MICROSECONDS, Case
from ottla.model.settings.topic_config import CleanupPolicy, TimestampType, TopicConfig
from ottla.runtime.disk import KernelDisk
from ottla.storage.log.admission import admit
from ottla.storage.producers.producer_state import ProducerStates
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.compression.codecs import Compression

TITLE = "Admission of a batch of 16 KB"
RECORDS = 150
MEGABYTE = 1_000_000
NOW_MS = 1_700_000_000_000

PLAIN = TopicConfig()
COMPACTED = TopicConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
LOG_APPEND_TIME = TopicConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
LZ4 = TopicConfig(compression_type="lz4")


def cases() -> Iterator[Case]:
    """Yield admission with and without its checksum, then the extra checks of some topics."""
    data = memoryview(produced_batch())
    batch = RecordBatch(data)
    yield _admission("admit", data, PLAIN)
    yield Case(
        work="admit, without the CRC",
        unit=MICROSECONDS,
        ours=partial(admit, data, PLAIN, NOW_MS),
        asked=4,
        baseline=batch.check_crc,
    )
    yield _admission("admit to a compacted topic", data, COMPACTED)
    yield _admission("admit and compress with lz4", data, LZ4)
    original = bytes(data)  # copied each time: a stamped batch is not admitted again
    yield Case(
        work="admit and stamp with LogAppendTime, from a copy",
        unit=MICROSECONDS,
        ours=lambda: admit(memoryview(bytearray(original)), LOG_APPEND_TIME, NOW_MS),
    )
    yield from _producer(batch)
    yield from _megabytes()


def _megabytes() -> Iterator[Case]:
    config = TopicConfig(max_message_bytes=4 * MEGABYTE)
    for value_bytes in (100, 1000):
        for codec in Compression:
            data = memoryview(megabyte(codec, value_bytes))
            work = f"admit 1 MB of records of {value_bytes} bytes, {codec.config_name}"
            yield _admission(work, data, config)


def _admission(work: str, data: memoryview, config: TopicConfig) -> Case:
    return Case(work=work, unit=MICROSECONDS, ours=partial(admit, data, config, NOW_MS))


def _producer(batch: RecordBatch) -> Iterator[Case]:
    states = ProducerStates(KernelDisk(), "")  # which has nothing to do with files until a snapshot
    states.apply(batch)
    following = RecordBatch(memoryview(produced_batch(base_sequence=RECORDS)))
    yield Case(
        work="check a batch against its producer's sequence",
        unit=MICROSECONDS,
        ours=partial(states.check, following, from_client=True),
    )
    yield Case(
        work="apply a batch to its producer's state",
        unit=MICROSECONDS,
        ours=partial(states.apply, batch),
        asked=2,
    )


def produced_batch(base_sequence: int = 0) -> bytearray:
    """Build the batch."""
    builder = BatchBuilder(producer_id=4000, producer_epoch=1, base_sequence=base_sequence)
    builder.extend(NOW_MS, [b"x" * 100] * RECORDS, [b"key1"] * RECORDS)
    return builder.build()


def megabyte(codec: Compression, value_bytes: int) -> bytearray:
    """Build a batch with a megabyte of records, each with this many bytes of text."""
    builder = BatchBuilder(compression=codec)
    text = text_of(MEGABYTE)
    values = [text[start : start + value_bytes] for start in range(0, len(text), value_bytes)]
    builder.extend(NOW_MS, values, [b"key1"] * len(values))
    return builder.build()
