"""Log slices on a connection: sent whole, in order; a cold slice delays no other connection."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from ottla.environment.disk import File
from ottla.runtime.disk import KernelDisk
from ottla.storage.files.log_slice import LogSlice
from ottla.wire.frames import frame_prefix
from tests.unit.broker.serving import (
    AllHot,
    Answer,
    a_while,
    answering,
    echo,
    frame,
    serving,
    until,
)

MEGABYTE = 1 << 20
PART_BYTES = 100_000
LARGE = os.urandom(5 * MEGABYTE)


@pytest.mark.parametrize("has_small_buffers", [False, True])
@pytest.mark.parametrize("size_bytes", [0, 1, 1000, 70_000, MEGABYTE + 1, 4 * MEGABYTE + 77])
def test_slices_between_bytes_arrive_whole(
    tmp_path: Path, size_bytes: int, has_small_buffers: bool
) -> None:
    file = KernelDisk().create_file(str(tmp_path / "segment.log"))
    file.write_at(0, LARGE)

    def answer(body: bytes) -> Answer:
        begin = int(body)
        part = LogSlice(file, begin, size_bytes)
        return [frame_prefix(2 * size_bytes + 5), b"<", part, b"><>", part, b">"]

    async def story() -> None:
        async with serving(answering(answer)) as running:
            client = await running.connect(has_small_buffers=has_small_buffers)
            await client.send(frame(b"0") + frame(b"12345"))
            for begin in (0, 12345):
                part = LARGE[begin : begin + size_bytes]
                assert await client.receive_frame() == b"<" + part + b"><>" + part + b">"

    asyncio.run(story())


class OneColdFile(AllHot):
    """A page cache that holds every file but one, which becomes hot when the disk responds."""

    def __init__(self, file: File) -> None:
        self.cold: File | None = file
        self.disk_answers = threading.Event()
        self.fetch_count = 0
        self.given_back: list[tuple[int, int]] = []
        self.error: OSError | None = None

    def needs_thread(self, file: File, position: int, size_bytes: int) -> bool:
        return file is self.cold

    def fetch(self, file: File, position: int, size_bytes: int) -> None:
        self.fetch_count += 1
        assert self.disk_answers.wait(10)
        if self.error is not None:
            raise self.error
        self.cold = None

    def give_back(self, file: File, position: int, size_bytes: int) -> None:
        self.given_back.append((position, size_bytes))


def file_answer(file: File, body: bytes) -> Answer:
    """Respond to "cold" with a slice of the file, and echo other bodies."""
    if body != b"cold":
        return echo(body)
    return [frame_prefix(PART_BYTES), LogSlice(file, 0, PART_BYTES)]


def test_a_cold_slice_delays_no_other_connection(tmp_path: Path) -> None:
    file = KernelDisk().create_file(str(tmp_path / "segment.log"))
    file.write_at(0, LARGE)
    disk = OneColdFile(file)

    async def story() -> None:
        async with serving(
            answering(lambda body: file_answer(file, body)), cold_reads=disk
        ) as running:
            waiting, other = [await running.connect() for _ in range(2)]
            await waiting.send(frame(b"cold"))
            await a_while()
            await waiting.send(frame(b"after"))
            for number in range(20):
                assert await other.ask(b"%d" % number) == b"%d" % number
            disk.disk_answers.set()
            assert await waiting.receive_frame() == LARGE[:PART_BYTES]
            assert await waiting.receive_frame() == b"after"
        assert disk.fetch_count == 1
        assert disk.given_back == [(0, PART_BYTES)]

    asyncio.run(story())


def test_a_disk_that_fails_ends_the_connections_that_need_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = KernelDisk().create_file(str(tmp_path / "segment.log"))
    disk = OneColdFile(file)
    disk.error = OSError(5, "the disk is broken")
    disk.disk_answers.set()

    async def story() -> None:
        async with serving(
            answering(lambda body: file_answer(file, body)), cold_reads=disk
        ) as running:
            unlucky, other = [await running.connect() for _ in range(2)]
            await unlucky.send(frame(b"cold"))
            await unlucky.receive_all()
            assert await other.ask(b"still here") == b"still here"
            assert running.reasons == {"send-failed": 1}

    asyncio.run(story())
    assert "the disk is broken" in caplog.text


def test_a_peer_that_goes_while_the_disk_works_is_forgotten(tmp_path: Path) -> None:
    file = KernelDisk().create_file(str(tmp_path / "segment.log"))
    file.write_at(0, LARGE)
    disk = OneColdFile(file)

    async def story() -> None:
        async with serving(
            answering(lambda body: file_answer(file, body)), cold_reads=disk
        ) as running:
            client = await running.connect()
            await client.send(frame(b"cold"))
            await a_while()
            client.reset()
            await until(lambda: running.server.connection_count == 0)
            disk.disk_answers.set()
            await until(lambda: disk.cold is None)
            await a_while()

    asyncio.run(story())
