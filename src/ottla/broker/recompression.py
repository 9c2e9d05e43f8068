"""Compresses batches anew for topics that name a codec, on a thread and in turn.

That may take a second for one batch. All batches for a partition of such a topic go through here
one after the other, also those that stay as they are, or that come when it names a codec no more:
so the produce requests of one connection keep their order. Others wait for nobody.
"""

import asyncio
from collections.abc import Collection, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, TypeAlias

from ottla.broker.lines import Lines
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.model.topic_config import PRODUCER_COMPRESSION, TopicConfig
from ottla.replication.partition import Partition
from ottla.storage.admission import compressed_anew, is_compressed_anew

Prepared: TypeAlias = memoryview | ApiError
"""A batch to append, or what is wrong with it."""
THREADS_MAX: Final = 2
"""How many of the broker's threads may compress at once; the others are for the disk."""


def config_with_codec(partition: Partition | None) -> TopicConfig | None:
    """Return a topic's settings if they name a codec, and the partition is led here."""
    if partition is None or partition.in_sync is None:
        return None
    config = partition.log.config
    return None if config.compression_type == PRODUCER_COMPRESSION else config


class Recompression:
    """Gives batches the codec of their topic before they are appended."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._lines = Lines()
        self._is_thread_free = asyncio.Semaphore(THREADS_MAX)

    def is_at_work(self, names: Collection[TopicPartition]) -> bool:
        """Return whether what comes now for one of these partitions would overtake something."""
        return self._lines.is_anybody_at(names)

    async def batches(
        self,
        found: Sequence[Prepared],
        names: Collection[TopicPartition],
        configs: Sequence[TopicConfig | None],
        now_ms: int,
    ) -> list[Prepared]:
        """Return the batches of one request, each as its topic's config wants it, if it has one.

        Whoever waits for it goes on before the next one's turn comes.
        """
        async with self._lines.turn(*names):
            if not any(map(_is_work, found, configs)):
                return list(found)
            work = partial(_all_batches, found, configs, now_ms)
            async with self._is_thread_free:
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _is_work(batch: Prepared, config: TopicConfig | None) -> bool:
    return (
        config is not None and not isinstance(batch, ApiError) and is_compressed_anew(batch, config)
    )


def _all_batches(
    found: Sequence[Prepared], configs: Sequence[TopicConfig | None], now_ms: int
) -> list[Prepared]:
    return [_batch(one, config, now_ms) for one, config in zip(found, configs, strict=True)]


def _batch(batch: Prepared, config: TopicConfig | None, now_ms: int) -> Prepared:
    if config is None or isinstance(batch, ApiError) or not is_compressed_anew(batch, config):
        return batch
    try:
        return compressed_anew(batch, config, now_ms)
    except ApiError as error:
        return error
