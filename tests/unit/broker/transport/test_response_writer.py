"""Outgoing responses: bytes and slices leave whole and in order, however little each send takes."""

import errno
import os
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.transport.response_writer import (
    CHUNK_BYTES,
    TURN_BYTES,
    Chunk,
    Piece,
    Progress,
    ResponseWriter,
)
from ottla.environment.disk import File
from ottla.runtime import cold_reads
from ottla.runtime.disk import KernelDisk
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.log_slice import LogSlice
from tests.examples import examples
from tests.unit.broker.serving import AllHot

SMALL_BUFFER_BYTES = 4096
SMALL_SEGMENT_BYTES = 1000  # smaller than the buffers: the kernel delays partial segments
CONTENT = os.urandom(3 << 20)


class SameThread(ThreadPoolExecutor):
    """Runs submitted work at once."""

    def submit(self, function: Any, /, *args: Any, **_: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(function(*args))
        return done


class Cold:
    """A page cache that holds only the fetched ranges."""

    def __init__(self) -> None:
        self.fetched: set[int] = set()
        self.given_back: list[tuple[int, int]] = []

    def needs_thread(self, file: File, position: int, size_bytes: int) -> bool:
        return position not in self.fetched

    def read_hot(self, file: File, position: int, size_bytes: int) -> bytearray | None:
        return None

    def fetch(self, file: File, position: int, size_bytes: int) -> None:
        self.fetched.add(position)

    def give_back(self, file: File, position: int, size_bytes: int) -> None:
        self.given_back.append((position, size_bytes))


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.socket()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SMALL_SEGMENT_BYTES)
        client.connect(server.getsockname())
        accepted, _ = server.accept()
    with client, accepted:
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER_BYTES)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.setblocking(False)
        client.setblocking(False)
        yield accepted, client


@pytest.fixture(scope="module")
def kernel_file(tmp_path_factory: pytest.TempPathFactory) -> File:
    file = KernelDisk().create_file(str(tmp_path_factory.mktemp("logs") / "segment.log"))
    file.write_at(0, CONTENT)
    return file


def simulated_file() -> File:
    file = SimulatedDisk().create_file("/segment.log")
    file.write_at(0, CONTENT)
    return file


def outgoing_of(*pieces: Piece) -> ResponseWriter:
    outgoing = ResponseWriter(AllHot(), SameThread(1))
    outgoing.add(pieces)
    return outgoing


def content_of(piece: Piece) -> bytes:
    return piece.read() if isinstance(piece, LogSlice) else bytes(piece)


def send_all(outgoing: ResponseWriter, sender: socket.socket, receiver: socket.socket) -> bytes:
    """Send everything while the peer reads all available bytes; fetch cold slices."""
    received = bytearray()
    due_bytes = outgoing.unsent_bytes
    while len(received) < due_bytes:
        if outgoing.send(sender) is Progress.COLD:
            assert outgoing.cold_chunk is not None
            outgoing._cold_reads.fetch(*outgoing.cold_chunk)
            outgoing.on_chunk_fetched()
        with suppress(BlockingIOError):
            received += receiver.recv(1 << 20)
    assert outgoing.send(sender) is Progress.DONE
    return bytes(received)


slices = st.builds(
    lambda position, size_bytes: (position, min(size_bytes, len(CONTENT) - position)),
    st.integers(0, len(CONTENT) - 1),
    st.sampled_from([0, 1, 100, 5000, 70_000, 400_000, CHUNK_BYTES + 1]),
)


@pytest.mark.parametrize("is_simulated", [False, True])
def test_bytes_and_slices_arrive_in_order_and_whole(
    is_simulated: bool, kernel_file: File, pair: tuple[socket.socket, socket.socket]
) -> None:
    file = simulated_file() if is_simulated else kernel_file

    @settings(deadline=None, max_examples=examples(50))
    @given(st.lists(st.binary(max_size=50) | st.just(bytes(100_000)) | slices, max_size=6))
    def check(parts: list[Any]) -> None:
        pieces = [LogSlice(file, *part) if isinstance(part, tuple) else part for part in parts]
        outgoing = outgoing_of(*pieces)
        assert send_all(outgoing, *pair) == b"".join(map(content_of, pieces))
        assert outgoing.unsent_bytes == 0

    check()


def test_every_kind_of_bytes_is_sent(pair: tuple[socket.socket, socket.socket]) -> None:
    outgoing = outgoing_of(b"bytes,", bytearray(b"bytearray,"), memoryview(b"view"), b"")
    assert send_all(outgoing, *pair) == b"bytes,bytearray,view"


def test_small_pieces_leave_together(pair: tuple[socket.socket, socket.socket]) -> None:
    outgoing = outgoing_of(*[b"small"] * 100)
    assert outgoing.send(pair[0]) is Progress.DONE
    assert pair[1].recv(1 << 16) == b"small" * 100


def test_nothing_to_send_is_nothing_done(pair: tuple[socket.socket, socket.socket]) -> None:
    assert outgoing_of().send(pair[0]) is Progress.DONE


def test_a_peer_that_does_not_read_blocks(pair: tuple[socket.socket, socket.socket]) -> None:
    outgoing = outgoing_of(bytes(16 << 20))
    while outgoing.send(pair[0]) is Progress.TURN_OVER:
        pass
    assert outgoing.send(pair[0]) is Progress.BLOCKED
    assert outgoing.sent_bytes + outgoing.unsent_bytes == 16 << 20
    assert outgoing.unsent_bytes > 0


def test_a_turn_ends_even_if_the_peer_could_take_more(kernel_file: File) -> None:
    class Insatiable:
        """A socket that accepts all bytes."""

        taken_bytes = 0

        def send(self, data: bytes, flags: int = 0) -> int:
            self.taken_bytes += len(data)
            return len(data)

    outgoing = outgoing_of(*[bytes(TURN_BYTES // 2)] * 5)
    peer: Any = Insatiable()
    turns = []
    while (progress := outgoing.send(peer)) is Progress.TURN_OVER:
        turns.append(peer.taken_bytes)
    assert turns == [TURN_BYTES, 2 * TURN_BYTES]
    assert progress is Progress.DONE


@pytest.mark.parametrize("make_file", [None, simulated_file])
def test_a_file_that_has_been_cut_meanwhile_is_an_error(
    make_file: Any, tmp_path: Path, pair: tuple[socket.socket, socket.socket]
) -> None:
    file = make_file() if make_file else KernelDisk().create_file(str(tmp_path / "segment.log"))
    file.write_at(0, b"some")
    file.truncate(4)
    outgoing = outgoing_of(LogSlice(file, 0, 10))
    with pytest.raises(OSError, match="ends before position 4") as raised:
        outgoing.send(pair[0])
    assert raised.value.errno == errno.ENODATA
    assert pair[1].recv(10) == b"some"


def test_a_cold_chunk_waits_to_be_fetched_and_is_given_back(
    kernel_file: File, pair: tuple[socket.socket, socket.socket]
) -> None:
    cold = Cold()
    outgoing = ResponseWriter(cold, SameThread(1))
    start, size_bytes = 1000, 2 * CHUNK_BYTES + 10
    outgoing.add([b"header", LogSlice(kernel_file, start, size_bytes), b"end"])
    received = send_all(outgoing, *pair)
    assert received == b"header" + CONTENT[start : start + size_bytes] + b"end"
    assert cold.fetched == {start, start + CHUNK_BYTES, start + 2 * CHUNK_BYTES}
    assert cold.given_back == [
        (start, CHUNK_BYTES),
        (start, 2 * CHUNK_BYTES),
        (start, 2 * CHUNK_BYTES + 10),
    ]


def test_each_cold_slice_is_given_back_by_itself(
    kernel_file: File, pair: tuple[socket.socket, socket.socket]
) -> None:
    cold = Cold()
    outgoing = ResponseWriter(cold, SameThread(1))
    outgoing.add([LogSlice(kernel_file, 5000, 200), LogSlice(kernel_file, 100, 300)])
    assert send_all(outgoing, *pair) == CONTENT[5000:5200] + CONTENT[100:400]
    assert cold.given_back == [(5000, 200), (100, 300)]


def test_hot_pages_are_not_given_back(
    kernel_file: File, pair: tuple[socket.socket, socket.socket]
) -> None:
    cold = Cold()
    cold.fetched.add(0)
    outgoing = ResponseWriter(cold, SameThread(1))
    outgoing.add([LogSlice(kernel_file, 0, 2000), LogSlice(kernel_file, 5000, 100)])
    assert outgoing.send(pair[0]) is Progress.COLD
    assert outgoing.cold_chunk == Chunk(kernel_file, 5000, 100)
    outgoing.on_chunk_fetched()
    assert outgoing.send(pair[0]) is Progress.DONE
    assert cold.given_back == [(5000, 100)]


def test_unsent_responses_can_be_dropped(pair: tuple[socket.socket, socket.socket]) -> None:
    outgoing = outgoing_of(b"never")
    outgoing.clear()
    assert outgoing.unsent_bytes == 0
    assert outgoing.send(pair[0]) is Progress.DONE


def test_a_small_hot_slice_leaves_with_its_neighbours(kernel_file: File) -> None:
    class Listening:
        """Accepts all bytes, and keeps the bytes of each send."""

        def __init__(self) -> None:
            self.sent: list[bytes] = []

        def send(self, data: bytes, _flags: int) -> int:
            self.sent.append(bytes(data))
            return len(data)

    peer: Any = Listening()
    outgoing = ResponseWriter(cold_reads, SameThread(1))
    outgoing.add([b"head", LogSlice(kernel_file, 10, 100), b"tail"])
    assert outgoing.unsent_bytes == 108
    assert outgoing.send(peer) is Progress.DONE
    assert peer.sent == [b"head" + CONTENT[10:110] + b"tail"]
