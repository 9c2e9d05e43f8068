"""Reads stdin in an event loop: pipes and terminals when they are readable, files at once."""

import asyncio
import os
import select
import sys
from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

CHUNK_BYTES: Final = 1 << 18


class Chunk(NamedTuple):
    """A part of the input, and whether more is available already."""

    data: bytes
    has_more: bool


async def chunks() -> AsyncGenerator[Chunk, None]:
    """Yield stdin as it arrives, until its end. Cancellation restores all state."""
    descriptor = sys.stdin.fileno()
    while True:
        await _readable(descriptor)
        data = os.read(descriptor, CHUNK_BYTES)
        if not data:
            return
        yield Chunk(data, bool(select.select([descriptor], [], [], 0)[0]))


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    arrived = loop.create_future()

    def wake() -> None:
        if not arrived.done():
            arrived.set_result(None)

    try:
        loop.add_reader(descriptor, wake)
    except PermissionError:
        return  # a file, which epoll does not support
    try:
        await arrived
    finally:
        loop.remove_reader(descriptor)
