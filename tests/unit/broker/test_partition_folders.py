"""Hundreds of logs are made at once, and the loop goes on meanwhile."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ottla.broker.partition_folders import MADE_AT_ONCE, PartitionFolders
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.model.topic_config import TopicConfig
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import KernelDisk
from ottla.runtime.randomness import SystemRandomness
from ottla.storage.log import PartitionLog
from ottla.storage.log_dirs import LogDirs
from ottla.storage.new_logs import NewLog

TOPIC_ID = b"the topic's id.."
WANTED = [
    NewLog(TopicPartition("orders", number), TOPIC_ID, TopicConfig(), leader_epoch=2)
    for number in range(5 * MADE_AT_ONCE + 1)
]


def opened(tmp_path: Path) -> LogDirs:
    dirs = LogDirs(KernelDisk(), [str(tmp_path / "a"), str(tmp_path / "b")])
    dirs.open(lambda _: TopicConfig(), 0)
    return dirs


def test_each_of_many_logs_is_made_once_and_told_on_the_loop(tmp_path: Path) -> None:
    dirs = opened(tmp_path)
    told: dict[TopicPartition, PartitionLog] = {}

    def on_made(wanted: NewLog, log: PartitionLog | ApiError) -> None:
        asyncio.get_running_loop()
        assert isinstance(log, PartitionLog)
        assert wanted.partition not in told
        told[wanted.partition] = log

    with ThreadPoolExecutor(1) as threads:
        folders = PartitionFolders(dirs, threads, SystemClock(), SystemRandomness())
        asyncio.run(folders.make(WANTED, on_made))
    assert told.keys() == {wanted.partition for wanted in WANTED}
    assert {log.epochs.latest_epoch for log in told.values()} == {2}
    counts = sorted(len(folder.hosted) for folder in dirs.dirs)
    assert counts == [len(WANTED) // 2, len(WANTED) - len(WANTED) // 2]
    again = opened(tmp_path)
    assert all(again.log_of(wanted.partition) is not None for wanted in WANTED)


def test_those_who_produce_do_not_wait_for_many_new_logs(tmp_path: Path) -> None:
    """The threads that flush are all taken, and the logs are made by others."""
    taken, is_over = asyncio.Event(), asyncio.Event()

    async def run() -> int:
        made: list[NewLog] = []
        with ThreadPoolExecutor(1) as threads:
            loop = asyncio.get_running_loop()

            def flush() -> None:
                loop.call_soon_threadsafe(taken.set)
                asyncio.run_coroutine_threadsafe(is_over.wait(), loop).result(60)

            flushing = loop.run_in_executor(threads, flush)
            await taken.wait()
            folders = PartitionFolders(opened(tmp_path), threads, SystemClock(), SystemRandomness())
            await asyncio.wait_for(folders.make(WANTED, lambda log, _: made.append(log)), 60)
            is_over.set()
            await flushing
        return len(made)

    assert asyncio.run(run()) == len(WANTED)
