"""Frames on one socket: whole, one after another, while the peer reads slowly."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ottla.rpc.errors import UnreachableError
from ottla.rpc.stream import UNSENT_BYTES_MAX, FrameStream

PIECE_BYTES = 1 << 20


@asynccontextmanager
async def streaming() -> AsyncIterator[tuple[FrameStream, socket.socket]]:
    """Give a stream, and the other end of its socket."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    stream = FrameStream(ours, lambda _: None, lambda _: None)
    with theirs:
        yield stream, theirs
        stream.close(UnreachableError("the test is over"))


async def read_exactly(theirs: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        received += await asyncio.get_running_loop().sock_recv(theirs, size - len(received))
    return bytes(received)


def test_frames_that_fill_the_socket_arrive_whole_and_in_order() -> None:
    frames = [[bytes([number]) * PIECE_BYTES, b"end"] for number in range(5)]

    async def run() -> None:
        async with streaming() as (stream, theirs):
            for pieces in frames:
                stream.send_now(pieces)
            assert stream.is_blocked
            expected = b"".join(piece for pieces in frames for piece in pieces)
            assert await read_exactly(theirs, len(expected)) == expected
            assert await stream.all_sent()
            assert not stream.is_blocked

    asyncio.run(run())


def test_a_sender_waits_above_the_limit_until_the_peer_has_read() -> None:
    large = bytes(UNSENT_BYTES_MAX + 8 * PIECE_BYTES)

    async def run() -> None:
        async with streaming() as (stream, theirs):
            stream.send_now([large])
            assert not stream.has_room
            later = asyncio.create_task(stream.send([b"later"]))
            await asyncio.sleep(0)
            assert not later.done()
            assert await read_exactly(theirs, len(large)) == large
            await later
            assert await read_exactly(theirs, 5) == b"later"

    asyncio.run(run())


def test_a_close_ends_the_wait_for_sent_bytes() -> None:
    async def run() -> bool:
        async with streaming() as (stream, _):
            stream.send_now([bytes(8 * PIECE_BYTES)])
            waiting = asyncio.create_task(stream.all_sent())
            await asyncio.sleep(0)
            stream.close(UnreachableError("closed"))
            return await waiting

    assert asyncio.run(run()) is False
