"""Sends and receives frames on one non-blocking socket, for a connection."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from ottla.environment.network import StreamSocket
from ottla.rpc.buffer_pool import BufferPool
from ottla.rpc.errors import UnreachableError
from ottla.rpc.frame_reader import FrameReader, new_scratch
from ottla.wire.protocol_error import ProtocolError

FRAME_BYTES_MAX: Final = 256 << 20
"""The limit of a response: a batch alone may have a hundred megabytes. The first bytes of HTTP, SSH
or TLS would exceed it as a length."""
UNSENT_BYTES_MAX: Final = 64 << 20
"""The limit of queued bytes: above it, senders wait until the broker has received some."""

_MSG_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)


class FrameStream:
    """Splits received bytes into frames, and sends queued frames, in order.

    `on_frame` is called with every frame, `on_end` once with the reason of the end.
    """

    def __init__(
        self,
        connected: StreamSocket,
        on_frame: Callable[[memoryview], None],
        on_end: Callable[[UnreachableError], None],
        pool: BufferPool | None = None,
    ) -> None:
        self.socket = connected
        self._on_frame = on_frame
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader(FRAME_BYTES_MAX, new_scratch(), pool)
        self.unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._sent_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[bool]]] = deque()
        """Futures with the number of sent bytes at which each completes."""
        self._has_room = asyncio.Event()
        self._has_room.set()
        self.is_closed = False
        self.is_blocked = False
        """Whether the loop waits for the socket to become writable."""
        self.is_lent = False
        """Whether another thread waits for the next frame, and may read it from the socket."""
        self.is_reading = False
        """Whether a frame is being received here, or was received in part."""
        self._loop.add_reader(connected, self._read)

    async def send(self, pieces: Iterable[Any]) -> None:
        """Queue a frame; waits only above UNSENT_BYTES_MAX."""
        while not self._has_room.is_set():
            await self._has_room.wait()
        self.send_now(pieces)

    async def all_sent(self) -> bool:
        """Return when the kernel has all queued bytes; False if the connection has ended."""
        if self.is_closed or not self.unsent:
            return not self.is_closed
        future: asyncio.Future[bool] = self._loop.create_future()
        self._waiting.append((self._sent_bytes + self._unsent_bytes, future))
        return await future

    @property
    def has_room(self) -> bool:
        """Whether `send` would return at once."""
        return self._has_room.is_set()

    def send_now(self, pieces: Iterable[Any]) -> None:
        """Queue a frame, even above UNSENT_BYTES_MAX."""
        if self.is_closed:
            return
        is_first = not self.unsent
        for piece in pieces:
            self.unsent.append(memoryview(piece))
            self._unsent_bytes += len(piece)
        if is_first:
            self._write()
        if self._unsent_bytes > UNSENT_BYTES_MAX:
            self._has_room.clear()

    def close(self, reason: UnreachableError) -> None:
        """End the connection, and report the reason."""
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self.socket)
        self._loop.remove_writer(self.socket)
        self.socket.close()
        self.unsent.clear()
        self._has_room.set()
        self._on_end(reason)
        self._tell_sent()

    def _read(self) -> None:
        self.is_reading = True  # from here on no other thread starts to read
        if not self.is_lent:
            self._read_now()
        self.is_reading = self._frames.has_unread

    def _read_now(self) -> None:
        try:
            size = self.socket.recv_into(self._frames.room())
        except BlockingIOError:
            return
        except OSError as error:
            self.close(UnreachableError(f"the connection broke ({error.strerror or error})"))
            return
        if size == 0:
            self.close(UnreachableError("the broker closed the connection"))
            return
        self._frames.received(size)
        try:
            while (frame := self._frames.take_frame()) is not None:
                self._on_frame(frame)
        except ProtocolError as error:
            self.close(UnreachableError(f"the peer is not a Kafka broker ({error.detail})"))

    def _write(self) -> None:
        try:
            while self.unsent:
                piece = self.unsent[0]
                # The head of a batch and the bytes after it would wake the broker on their own.
                sent = self.socket.send(piece, _MSG_MORE if len(self.unsent) > 1 else 0)
                self._unsent_bytes -= sent
                self._sent_bytes += sent
                if sent < len(piece):
                    self.unsent[0] = piece[sent:]
                else:
                    self.unsent.popleft()
        except BlockingIOError:
            self.is_blocked = True
            self._loop.add_writer(self.socket, self._write)
        except OSError as error:
            self.close(UnreachableError(f"the connection broke ({error.strerror or error})"))
            return
        else:
            if self.is_blocked:
                self.is_blocked = False
                self._loop.remove_writer(self.socket)
        if self._unsent_bytes <= UNSENT_BYTES_MAX:
            self._has_room.set()
        self._tell_sent()

    def _tell_sent(self) -> None:
        """Complete the futures of sent bytes, or all futures if the connection has ended."""
        while self._waiting and (self.is_closed or self._waiting[0][0] <= self._sent_bytes):
            end_bytes, future = self._waiting.popleft()
            if not future.done():
                future.set_result(end_bytes <= self._sent_bytes)
