"""Frames into one socket: whole, one behind the other, whichever threads send them."""

import asyncio
import socket
from collections.abc import Iterator

from ottla.clients.errors import UnreachableError
from ottla.clients.stream import FrameStream


def test_a_frame_waits_for_the_end_of_one_that_another_thread_has_just_begun() -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        stream = FrameStream(ours, lambda _: None, lambda _: None)

        def pieces() -> Iterator[bytes]:
            ours.send(b"begun, ")  # as the other thread does, at the worst of times
            stream.is_sending = True
            yield b"next"

        stream.send_now(pieces())
        assert theirs.recv(100) == b"begun, "
        stream.have_sent([memoryview(b"ended, ")])
        await asyncio.sleep(0)
        assert theirs.recv(100) == b"ended, next"
        stream.close(UnreachableError("the story is over"))
        theirs.close()

    asyncio.run(run())
