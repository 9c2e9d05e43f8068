"""Cold reads on real files: detected, fetched by a thread, and released."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottla.runtime import cold_reads
from ottla.runtime.cold_reads import is_cached
from ottla.runtime.disk import KernelDisk, KernelFile
from ottla.simulation.world.disk import SimulatedDisk

SIZE_BYTES = 8 << 20


@pytest.fixture
def file(tmp_path: Path) -> KernelFile:
    made = KernelDisk().create_file(str(tmp_path / "segment.log"))
    made.write_at(0, os.urandom(SIZE_BYTES))
    made.sync()
    return made


def evict(file: KernelFile) -> bool:
    """Advise the kernel to drop the file from the page cache; it may ignore that."""
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return not is_cached(file, 0, SIZE_BYTES)


def test_what_was_just_written_needs_no_thread(file: KernelFile) -> None:
    assert not cold_reads.needs_thread(file, 0, SIZE_BYTES)


def test_after_a_fetch_nothing_needs_a_thread(file: KernelFile) -> None:
    was_cold = evict(file)
    assert cold_reads.needs_thread(file, 0, SIZE_BYTES) == was_cold
    cold_reads.fetch(file, 0, SIZE_BYTES)
    assert not cold_reads.needs_thread(file, 0, SIZE_BYTES)


def test_a_part_that_reaches_past_the_end_is_fetched_up_to_the_end(file: KernelFile) -> None:
    cold_reads.fetch(file, SIZE_BYTES - 10, 1 << 20)
    assert not cold_reads.needs_thread(file, SIZE_BYTES - 10, 10)


def test_a_reader_of_old_data_leaves_the_rest_of_the_file_alone(file: KernelFile) -> None:
    half = SIZE_BYTES // 2
    evict(file)
    cold_reads.fetch(file, 0, SIZE_BYTES)
    cold_reads.give_back(file, 0, half)
    assert not cold_reads.needs_thread(file, half, half)


def test_the_loop_goes_on_while_a_thread_fetches(file: KernelFile) -> None:
    evict(file)

    async def ticks_during_fetch() -> int:
        ticks = 0
        with ThreadPoolExecutor(1) as threads:
            loop = asyncio.get_running_loop()
            fetched = loop.run_in_executor(threads, cold_reads.fetch, file, 0, SIZE_BYTES)
            while not fetched.done():
                ticks += 1
                await asyncio.sleep(0)
        return ticks

    assert asyncio.run(ticks_during_fetch()) > 0


def test_a_simulated_file_never_needs_a_thread() -> None:
    file = SimulatedDisk().create_file("/a")
    assert not cold_reads.needs_thread(file, 0, 10)
