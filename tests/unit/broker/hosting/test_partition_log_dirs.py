"""The event loop keeps running while logs are opened or many are created at once."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.broker.hosting.partition_log_dirs import MADE_AT_ONCE, PartitionLogDirs
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.topic_config import TopicConfig
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import KernelDisk
from ottla.runtime.randomness import SystemRandomness
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.storage.files.checkpoints import CLEAN_SHUTDOWN_FILE
from ottla.storage.log.leader_epochs import LEADER_EPOCH_FILE
from ottla.storage.log.log import PartitionLog
from ottla.storage.log_dirs.bulk_creation import NewLog
from ottla.storage.log_dirs.log_dirs import LogDirs
from tests.log_building import fill

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
        folders = PartitionLogDirs(dirs, threads, SystemClock(), SystemRandomness())
        asyncio.run(folders.make(WANTED, on_made))
    assert told.keys() == {wanted.partition for wanted in WANTED}
    assert {log.epochs.latest_epoch for log in told.values()} == {2}
    counts = sorted(len(folder.hosted) for folder in dirs.dirs)
    assert counts == [len(WANTED) // 2, len(WANTED) - len(WANTED) // 2]
    again = opened(tmp_path)
    assert all(again.log_of(wanted.partition) is not None for wanted in WANTED)


def test_producers_do_not_wait_for_many_new_logs(tmp_path: Path) -> None:
    """All flush threads are busy, so other threads create the logs."""
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
            folders = PartitionLogDirs(opened(tmp_path), threads, SystemClock(), SystemRandomness())
            await asyncio.wait_for(folders.make(WANTED, lambda log, _: made.append(log)), 60)
            is_over.set()
            await flushing
        return len(made)

    assert asyncio.run(run()) == len(WANTED)


class SlowLogs:
    """Signals that a log is about to be opened, then blocks until the test lets it continue."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self.may_go_on = threading.Event()
        self.reached: list[TopicPartition] = []

    def is_stray(self, partition: TopicPartition, _: bytes | None) -> bool:
        self.reached.append(partition)
        self.is_reached.set()
        assert self.may_go_on.wait(60)
        return False


def made(tmp_path: Path) -> None:
    """Make two logs in each of two log dirs, and stop cleanly."""
    dirs = opened(tmp_path)
    for wanted in WANTED[:4]:
        dirs.create(wanted.partition, TOPIC_ID, wanted.config, 0)
    dirs.close(0, 1)


@asynccontextmanager
async def being_opened(dirs: LogDirs, slow: SlowLogs) -> AsyncIterator[asyncio.Future[None]]:
    """Begin to open logs, and stop before the first."""
    with ThreadPoolExecutor(1) as threads:
        folders = PartitionLogDirs(dirs, threads, SystemClock(), SystemRandomness())
        opening = asyncio.ensure_future(folders.open(lambda _: TopicConfig(), slow.is_stray))
        await asyncio.to_thread(slow.is_reached.wait)
        yield opening


def test_the_loop_goes_on_while_logs_are_opened(tmp_path: Path) -> None:
    made(tmp_path)
    dirs = LogDirs(KernelDisk(), [str(tmp_path / "a"), str(tmp_path / "b")])
    slow = SlowLogs()

    async def run() -> None:
        async with being_opened(dirs, slow) as opening:
            slow.may_go_on.set()
            await opening

    asyncio.run(run())
    assert all(dirs.log_of(wanted.partition) is not None for wanted in WANTED[:4])


def test_a_cancelled_creation_waits_for_one_log_at_most(tmp_path: Path) -> None:
    made(tmp_path)
    dirs = LogDirs(KernelDisk(), [str(tmp_path / "a"), str(tmp_path / "b")])
    slow = SlowLogs()

    async def run() -> None:
        async with being_opened(dirs, slow) as opening:
            opening.cancel()
            assert not (await asyncio.wait([opening], timeout=0.01))[0], "the thread is in a folder"
            slow.may_go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await opening

    asyncio.run(run())
    assert len(slow.reached) == 1
    assert not (tmp_path / "a" / CLEAN_SHUTDOWN_FILE).exists()
    assert (tmp_path / "b" / CLEAN_SHUTDOWN_FILE).exists(), "nobody has been there"


class TestALogThatIsNotOpen:
    """The first log could not be opened because the disk was full."""

    def left_unopened(self) -> LogDirs:
        disk = SimulatedDisk()
        dirs = LogDirs(disk, ["/a"])
        dirs.open(lambda _: TopicConfig(), 0)
        for wanted in WANTED[:2]:
            fill(dirs.create(wanted.partition, TOPIC_ID, wanted.config, 0), 5)
        disk.kill()
        directory = f"/a/{WANTED[0].partition}"
        # Recovery writes the leader epoch checkpoint only if it is damaged.
        disk.create_file(f"{directory}/{LEADER_EPOCH_FILE}").write_at(0, b"damaged")
        disk.faults.fail_on(OperationKind.WRITE, under=directory, error=errno.ENOSPC)
        again = LogDirs(disk, ["/a"])
        again.open(lambda _: TopicConfig(), 0)
        assert [*again.dirs[0].unopened] == [WANTED[0].partition]
        disk.faults.heal()
        return again

    def run(self, dirs: LogDirs, *made: NewLog, deleted: bytes | None = None) -> list[int]:
        """Return the end offsets of the created logs, after one may have been deleted."""
        ends: list[int] = []

        def on_made(_: NewLog, log: PartitionLog | ApiError) -> None:
            assert isinstance(log, PartitionLog)
            ends.append(log.end_offset)

        async def act() -> None:
            with ThreadPoolExecutor(1) as threads:
                folders = PartitionLogDirs(dirs, threads, SystemClock(), SystemRandomness())
                assert (WANTED[0].partition, TOPIC_ID) in folders.hosted()
                if deleted is not None:
                    await folders.delete([(WANTED[0].partition, deleted)])
                    assert [*folders.hosted()] == [(WANTED[1].partition, TOPIC_ID)]
                await folders.make(made, on_made)
                await folders.stop()

        asyncio.run(act())
        return ends

    def test_its_topic_gets_it_when_there_is_room(self) -> None:
        assert self.run(self.left_unopened(), WANTED[0]) == [5]

    def test_another_topic_of_that_name_gets_nothing_of_it(self) -> None:
        dirs = self.left_unopened()
        assert self.run(dirs, WANTED[0]._replace(topic_id=b"another one's id")) == [0]
        assert dirs.dirs[0].hosted[WANTED[0].partition].topic_id == b"another one's id"

    def test_it_is_deleted_with_its_topic(self) -> None:
        dirs = self.left_unopened()
        self.run(dirs, deleted=TOPIC_ID)
        assert dirs.dirs[0].unopened == {}
        names = dirs.dirs[0].open_files.disk.list_directory("/a")
        assert not [name for name in names if name.startswith(str(WANTED[0].partition))]
