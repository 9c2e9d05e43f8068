"""Validates batches before they are appended, on a thread where the event loop would be held up.

A few uncompressed batches are left to the append, which validates them itself. Small compressed
ones are validated here, on the event loop. On a thread go the batches of a request that are large
together, or decompress to much, or are compressed anew because the topic names another codec. While
a partition's batch is on a thread, later requests for that partition wait: so the produce requests
of one connection keep their order. Requests for other partitions do not wait.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, TypeAlias

from ottla.concurrency.keyed_lock import KeyedLock
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.topic_config import PRODUCER_COMPRESSION, TopicConfig
from ottla.replication.partition import Partition
from ottla.storage.log.admission import Validated, is_compressed_anew, validate
from ottla.wire.protocol_error import TooLargeError
from ottla.wire.records.batch import ATTRIBUTES_LOW_BYTE_AT, CODEC_MASK, MAGIC, MAGIC_AT
from ottla.wire.records.compression.codecs import Compression

Prepared: TypeAlias = memoryview | Validated | ApiError
"""A batch to append, or its validation error."""
THREADS_MAX: Final = 2
"""How many of the broker's threads may validate at once; the others are for the disk. Each holds
the decompressed records of one batch."""
LOOP_BYTES_MAX: Final = 2 << 20
"""How many bytes of uncompressed batches the event loop validates for one request."""
LOOP_COMPRESSED_BYTES_MAX: Final = 64 << 10
"""How many bytes of compressed batches it validates for one request."""
LOOP_DECOMPRESSED_BYTES_MAX: Final = 1 << 20
"""And how many bytes these may decompress to."""
ZSTD_SINCE: Final = 7
"""The first version of Produce that may contain batches with Zstandard compression."""


def config_if_led(partition: Partition | None) -> TopicConfig | None:
    """Return the topic's settings if the partition is led here."""
    if partition is None or partition.in_sync is None:
        return None
    return partition.log.config


def is_compressed(data: memoryview) -> bool:
    """Return whether a batch names a codec."""
    return len(data) > ATTRIBUTES_LOW_BYTE_AT and data[ATTRIBUTES_LOW_BYTE_AT] & CODEC_MASK != 0


def checked_format(data: Prepared, version: int) -> Prepared:
    """Return the error of `check_format` in place of a batch that may not be in the request."""
    try:
        if isinstance(data, memoryview):
            check_format(data, version)
    except ApiError as error:
        return error
    return data


def check_format(data: memoryview, version: int) -> None:
    """Raise ApiError for records that this version may not have; ensures complete headers."""
    if len(data) <= ATTRIBUTES_LOW_BYTE_AT:
        return
    if data[MAGIC_AT] < MAGIC:
        raise ApiError(ErrorCode.INVALID_RECORD, f"a message set in Produce v{version}")
    if version < ZSTD_SINCE and data[ATTRIBUTES_LOW_BYTE_AT] & CODEC_MASK == Compression.ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Zstandard in Produce v{version}")


def names_codec(config: TopicConfig | None) -> bool:
    """Return whether this broker's partition may have its batches recompressed."""
    return config is not None and config.compression_type != PRODUCER_COMPRESSION


class BatchValidation:
    """Validates the batches of produce requests, in the order of the requests."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._locks = KeyedLock()
        self._free_threads = asyncio.Semaphore(THREADS_MAX)

    def is_at_work(self, names: Collection[TopicPartition]) -> bool:
        """Return whether a request for these partitions would overtake one under validation."""
        return self._locks.is_held(names)

    async def batches(
        self,
        found: Sequence[Prepared],
        names: Collection[TopicPartition],
        configs: Sequence[TopicConfig | None],
        now_ms: int,
    ) -> Sequence[Prepared]:
        """Return the batches of one request, validated for their topics' configs.

        Does not suspend if the event loop can do it and no earlier request is in progress. The
        caller continues before the next request.
        """
        if not self.is_at_work(names):
            validated = _on_loop(found, configs, now_ms)
            if validated is not None:
                return validated
        async with self._locks.hold(*names):
            validated = _on_loop(found, configs, now_ms)
            if validated is not None:
                return validated
            return await self._on_thread(partial(_all, found, configs, now_ms))

    async def _on_thread(self, work: Callable[[], list[Prepared]]) -> list[Prepared]:
        await self._free_threads.acquire()
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        # Where the connection breaks, this coroutine is cancelled, but not the thread's work:
        # the thread is free when that has ended.
        running.add_done_callback(lambda _: self._free_threads.release())
        return await asyncio.shield(running)


def is_left_to_append(sent: Iterable[memoryview | None]) -> bool:
    """Return whether a request has only uncompressed batches that are not large together."""
    size_bytes = 0
    for data in sent:
        if data is not None:
            size_bytes += len(data)
            if size_bytes > LOOP_BYTES_MAX or is_compressed(data):
                return False
    return True


def _on_loop(
    found: Sequence[Prepared], configs: Sequence[TopicConfig | None], now_ms: int
) -> Sequence[Prepared] | None:
    """Validate the compressed batches; None if that, or the rest, would take too long."""
    plain_bytes = compressed_bytes = 0
    for data, config in zip(found, configs, strict=True):
        if config is None or not isinstance(data, memoryview):
            continue
        if is_compressed_anew(data, config):
            return None
        if is_compressed(data):
            compressed_bytes += len(data)
        else:
            plain_bytes += len(data)
    if plain_bytes > LOOP_BYTES_MAX or compressed_bytes > LOOP_COMPRESSED_BYTES_MAX:
        return None
    return found if compressed_bytes == 0 else _small(found, configs, now_ms)


def _small(
    found: Sequence[Prepared], configs: Sequence[TopicConfig | None], now_ms: int
) -> Sequence[Prepared] | None:
    left_bytes = LOOP_DECOMPRESSED_BYTES_MAX
    prepared: list[Prepared] = []
    for data, config in zip(found, configs, strict=True):
        if config is None or not isinstance(data, memoryview) or not is_compressed(data):
            prepared.append(data)
            continue
        try:
            one = validate(data, config, now_ms, decompressed_bytes_max=left_bytes)
            left_bytes -= one.decompressed_bytes
            prepared.append(one)
        except TooLargeError:
            return None
        except ApiError as error:
            prepared.append(error)
    return prepared


def _all(
    found: Sequence[Prepared], configs: Sequence[TopicConfig | None], now_ms: int
) -> list[Prepared]:
    return [_one(data, config, now_ms) for data, config in zip(found, configs, strict=True)]


def _one(data: Prepared, config: TopicConfig | None, now_ms: int) -> Prepared:
    if config is None or not isinstance(data, memoryview):
        return data
    try:
        return validate(data, config, now_ms)
    except ApiError as error:
        return error
