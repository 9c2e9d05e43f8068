"""Frames on one socket: whole, one after another, from any thread."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from ottla.clients.errors import UnreachableError
from ottla.rpc.stream import FrameStream


@asynccontextmanager
async def streaming() -> AsyncIterator[tuple[FrameStream, socket.socket]]:
    """Give a stream, and the other end of its socket."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    stream = FrameStream(ours, lambda _: None, lambda _: None)
    with theirs:
        yield stream, theirs
        stream.close(UnreachableError("the story is over"))


def test_a_frame_waits_for_the_end_of_one_that_another_thread_has_just_begun() -> None:
    async def run() -> None:
        async with streaming() as (stream, theirs):

            def pieces() -> Iterator[bytes]:
                stream.socket.send(b"begun, ")  # as the other thread does, at the worst of times
                stream.is_sending = True
                yield b"next"

            stream.send_now(pieces())
            assert theirs.recv(100) == b"begun, "
            stream.have_sent([memoryview(b"ended, ")])
            await asyncio.sleep(0)
            assert theirs.recv(100) == b"ended, next"

    asyncio.run(run())


def test_nobody_begins_a_frame_before_the_rest_of_the_last_one_is_queued() -> None:
    may_begin: list[bool] = []

    async def run() -> None:
        async with streaming() as (stream, theirs):

            class Rest(list[memoryview]):
                def __reversed__(self) -> Iterator[memoryview]:
                    may_begin.append(not stream.is_sending and not stream.unsent)
                    return super().__reversed__()

            stream.is_sending = True
            stream.have_sent(Rest([memoryview(b"ended")]))
            await asyncio.sleep(0)
            assert theirs.recv(100) == b"ended"
            assert not stream.is_sending

    asyncio.run(run())
    assert may_begin == [False]
