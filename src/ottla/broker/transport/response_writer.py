"""Sends the responses of a connection: bytes by `send`, file slices by `sendfile`, in order.

A slice is checked in chunks. A cold chunk is not sent, because the disk would stall the loop. A
thread reads it into the page cache first.
"""

import errno
import os
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from enum import Enum, auto
from socket import MSG_MORE
from typing import Final, NamedTuple, Protocol

from ottla.environment.disk import File
from ottla.environment.network import StreamSocket
from ottla.storage.files.log_slice import LogSlice

TURN_BYTES: Final = (1 << 20) + (1 << 14)
"""About how much a connection sends per time slice: a whole fetch of a megabyte."""
CHUNK_BYTES: Final = 1 << 20
"""The chunk of a slice that is checked for residency, and loaded if it is cold."""
COPIED_BYTES_MAX: Final = 1 << 16
"""The read size for a file that the kernel cannot send."""
SMALL_SLICE_BYTES: Final = 1 << 13
"""A slice up to this size is read and joined with its neighbours: cheaper than `sendfile`."""
JOINED_BYTES_MAX: Final = 1 << 16
"""Small pieces are joined up to this size: copying is cheaper than calling the kernel."""

Piece = bytes | bytearray | memoryview | LogSlice


class ColdReads(Protocol):
    """Tells cold parts of files from hot ones; `ottla.runtime.cold_reads` is one."""

    def needs_thread(self, file: File, position: int, size_bytes: int) -> bool:
        """Return, without waiting for the disk, whether sending this would wait for it."""
        ...

    def read_hot(self, file: File, position: int, size_bytes: int) -> bytearray | None:
        """Return these bytes unless that would wait for the disk, or cannot be done."""
        ...

    def fetch(self, file: File, position: int, size_bytes: int) -> None:
        """Make it hot; called on a thread."""
        ...

    def give_back(self, file: File, position: int, size_bytes: int) -> None:
        """Record that a cold chunk was sent; called on a thread."""
        ...


class Progress(Enum):
    """Why sending has stopped."""

    DONE = auto()
    BLOCKED = auto()
    """The peer has to read first."""
    TURN_OVER = auto()
    COLD = auto()
    """`cold_chunk` has to be fetched first."""


class Chunk(NamedTuple):
    """A part of a file."""

    file: File
    position: int
    size_bytes: int


class ResponseWriter:
    """The pieces that wait to be sent on one socket."""

    __slots__ = (
        "_cold_reads",
        "_cold_start",
        "_head_sent_bytes",
        "_hot_bytes",
        "_pieces",
        "_threads",
        "cold_chunk",
        "sent_bytes",
        "unsent_bytes",
    )

    def __init__(self, cold_reads: ColdReads, threads: Executor) -> None:
        self._cold_reads = cold_reads
        self._threads = threads
        self._pieces: deque[Piece] = deque()
        self._head_sent_bytes = 0  # of the first piece
        self._hot_bytes = 0  # that follow them, if the first piece is a slice
        self._cold_start: int | None = None  # the start of the cold range before the send position
        self.cold_chunk: Chunk | None = None
        self.sent_bytes = 0
        self.unsent_bytes = 0

    @property
    def memory_bytes(self) -> int:
        """How much memory the unsent pieces take. Parts of files take none."""
        return memory_bytes(self._pieces)

    def add(self, pieces: Sequence[Piece]) -> None:
        """Send these after all others."""
        for piece in pieces:
            if size_bytes := len(piece):
                is_small = size_bytes <= SMALL_SLICE_BYTES and isinstance(piece, LogSlice)
                self._pieces.append(self._read_if_hot(piece) if is_small else piece)
                self.unsent_bytes += size_bytes

    def _read_if_hot(self, piece: Piece) -> Piece:
        assert isinstance(piece, LogSlice)
        data = self._cold_reads.read_hot(piece.file, piece.position, piece.size_bytes)
        return piece if data is None else data

    def clear(self) -> None:
        """Forget everything that was not sent."""
        self._pieces.clear()
        self.cold_chunk = None
        self.unsent_bytes = self._head_sent_bytes = self._hot_bytes = 0

    def send(self, sock: StreamSocket) -> Progress:
        """Send until nothing is left, or the socket or a cold chunk blocks.

        An OSError means that the peer is gone, or that a file cannot be read; a partly sent
        response cannot be completed then.
        """
        end_bytes = self.sent_bytes + TURN_BYTES
        try:
            while self._pieces:
                if self.sent_bytes >= end_bytes:
                    return Progress.TURN_OVER
                if not isinstance(self._pieces[0], LogSlice):
                    self._send_bytes(sock)
                elif self._is_hot(self._pieces[0]):
                    self._send_slice(sock, self._pieces[0])
                else:
                    return Progress.COLD
        except BlockingIOError:
            return Progress.BLOCKED
        return Progress.DONE

    def _send_bytes(self, sock: StreamSocket) -> None:
        head = self._joined_head()
        flags = MSG_MORE if len(self._pieces) > 1 else 0  # so that they share packets
        if self._head_sent_bytes:
            head = memoryview(head)[self._head_sent_bytes :]
        self._advance(sock.send(head, flags))

    def _joined_head(self) -> bytes | bytearray | memoryview:
        """Join the first pieces, as long as they are bytes, and few."""
        pieces = self._pieces
        head = pieces[0]
        assert not isinstance(head, LogSlice)
        if self._head_sent_bytes or len(pieces) == 1:
            return head
        joined: list[bytes | bytearray | memoryview] = []
        size_bytes = 0
        while pieces and not isinstance(piece := pieces[0], LogSlice):
            size_bytes += len(piece)
            if joined and size_bytes > JOINED_BYTES_MAX:
                break
            joined.append(piece)
            pieces.popleft()
        if len(joined) > 1:
            head = b"".join(joined)
        pieces.appendleft(head)
        return head

    def _is_hot(self, piece: LogSlice) -> bool:
        """Look at the next chunk, unless that has been done."""
        if self._hot_bytes:
            return True
        position = piece.position + self._head_sent_bytes
        size_bytes = min(CHUNK_BYTES, len(piece) - self._head_sent_bytes)
        if self._cold_reads.needs_thread(piece.file, position, size_bytes):
            self.cold_chunk = Chunk(piece.file, position, size_bytes)
            return False
        self._hot_bytes = size_bytes
        self._cold_start = None
        return True

    def on_chunk_fetched(self) -> None:
        """Record that the cold chunk was loaded."""
        assert self.cold_chunk is not None
        self._hot_bytes = self.cold_chunk.size_bytes
        if self._cold_start is None:
            self._cold_start = self.cold_chunk.position
        self.cold_chunk = None

    def _send_slice(self, sock: StreamSocket, piece: LogSlice) -> None:
        position = piece.position + self._head_sent_bytes
        sent_bytes = _send_part(sock, piece.file, position, self._hot_bytes)
        self._hot_bytes -= sent_bytes
        if self._cold_start is not None and not self._hot_bytes:
            # From the start of the cold range: the kernel keeps pages that are still being sent, so
            # each call drops the pages that earlier calls could not.
            size_bytes = position + sent_bytes - self._cold_start
            self._threads.submit(
                self._cold_reads.give_back, piece.file, self._cold_start, size_bytes
            )
        self._advance(sent_bytes)

    def _advance(self, size_bytes: int) -> None:
        self.sent_bytes += size_bytes
        self.unsent_bytes -= size_bytes
        self._head_sent_bytes += size_bytes
        if self._head_sent_bytes == len(self._pieces[0]):
            self._pieces.popleft()
            self._head_sent_bytes = 0
            self._cold_start = None


def memory_bytes(pieces: Iterable[Piece]) -> int:
    """Return how much memory pieces take. Parts of files take none."""
    return sum(len(piece) for piece in pieces if not isinstance(piece, LogSlice))


def _send_part(sock: StreamSocket, file: File, position: int, size_bytes: int) -> int:
    """Send some of a part of a file, and return how much."""
    try:
        descriptor = file.fileno()
    except OSError:  # as it is with a file that the kernel does not have
        sent_bytes = _send_copy(sock, file, position, size_bytes)
    else:
        sent_bytes = os.sendfile(sock.fileno(), descriptor, position, size_bytes)
    if sent_bytes == 0:
        raise OSError(errno.ENODATA, f"the file ends before position {position}")
    return sent_bytes


def _send_copy(sock: StreamSocket, file: File, position: int, size_bytes: int) -> int:
    data = file.read_at(position, min(size_bytes, COPIED_BYTES_MAX))
    return sock.send(data) if data else 0
