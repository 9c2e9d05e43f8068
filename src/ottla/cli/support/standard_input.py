"""Reads stdin in an event loop: a pipe or a terminal when it has something, a file at once."""

import asyncio
import os
import select
import sys
from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

CHUNK_BYTES: Final = 1 << 18


class Chunk(NamedTuple):
    """Some input, and whether more is there already."""

    data: bytes
    has_more: bool


async def chunks() -> AsyncGenerator[Chunk, None]:
    """Go through stdin as it comes, until its end. Cancelling leaves nothing behind."""
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
        return  # a file, which cannot be waited for and need not be
    try:
        await arrived
    finally:
        loop.remove_reader(descriptor)
