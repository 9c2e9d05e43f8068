"""The sockets of simulated machines. The contracts are in `ottla.environment.network`.

Sent data goes into the stream's queue; the network delivers it on the other side, in order.
`END` is the end of a direction, `RESET` breaks both.
"""

import errno
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.environment.disk import Buffer
from ottla.simulation.world.process import Process

if TYPE_CHECKING:
    from ottla.simulation.world.network import SimulatedNetwork

WINDOW_BYTES: Final = 1 << 18
"""The bytes in flight or unread at which a sender has to wait."""
Address = tuple[str, int]


class Mark(Enum):
    """Events that can arrive besides bytes."""

    END = "end"
    RESET = "reset"


class SimulatedSocket:
    """One end of a connection; it belongs to the process that made it."""

    def __init__(
        self, network: "SimulatedNetwork", owner: Process, machine: str, address: Address
    ) -> None:
        self.owner = owner
        self.machine = machine
        self.address = address
        self.peer: SimulatedSocket | None = None
        self.is_open = True
        self.on_the_way: deque[bytes | Mark] = deque()
        """From here to the peer."""
        self.arrives_at = 0.0
        """When the last of that arrives, at the earliest."""
        self.untaken_bytes = 0
        self._network = network
        self._received: deque[memoryview] = deque()
        self._is_ended = False
        self._is_reset = False

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        """Receive the bytes that have arrived, as many as fit."""
        self._check_usable()
        if self._received:
            return self._take(memoryview(buffer))
        if self._is_ended:
            return 0
        raise BlockingIOError(errno.EAGAIN, "nothing has arrived")

    def send(self, data: Buffer, _flags: int = 0, /) -> int:
        """Put as much on the way as the window lets through."""
        self._check_usable()
        room = WINDOW_BYTES - self.untaken_bytes
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, "the window is full")
        taken = bytes(memoryview(data)[:room])
        self.untaken_bytes += len(taken)
        self._network.transmit(self, taken)
        return len(taken)

    def close(self) -> None:
        """Let the sent data arrive, and then the end."""
        if self.is_open:
            self.is_open = False
            self._received.clear()
            if not self._is_reset:
                self._network.transmit(self, Mark.END)

    def fileno(self) -> int:
        """Say that the kernel does not know it."""
        raise OSError(errno.EBADF, "a simulated socket has no descriptor")

    def getpeername(self) -> Address:
        """Return the address of the other end."""
        assert self.peer is not None
        return self.peer.address

    def is_readable(self) -> bool:
        """Tell whether reading would not block."""
        return self.is_open and bool(self._received or self._is_ended or self._is_reset)

    def is_writable(self) -> bool:
        """Tell whether writing would not block."""
        return self.is_open and (self._is_reset or self.untaken_bytes <= WINDOW_BYTES // 2)

    def arrive(self, piece: bytes | Mark) -> None:
        """Let the network put something in."""
        if piece is Mark.RESET:
            self._is_reset = True
        elif piece is Mark.END:
            self._is_ended = True
        else:
            assert isinstance(piece, bytes)
            self._received.append(memoryview(piece))

    def _take(self, buffer: memoryview) -> int:
        head = self._received[0]
        size_bytes = min(len(head), len(buffer))
        buffer[:size_bytes] = head[:size_bytes]
        if size_bytes == len(head):
            self._received.popleft()
        else:
            self._received[0] = head[size_bytes:]
        self._network.taken(self, size_bytes)
        return size_bytes

    def _check_usable(self) -> None:
        if not self.is_open:
            raise OSError(errno.EBADF, "the socket is closed")
        if self._is_reset:
            raise ConnectionResetError(errno.ECONNRESET, "the connection was reset")


class SimulatedListener:
    """A port that peers connect to."""

    def __init__(self, network: "SimulatedNetwork", owner: Process, address: Address) -> None:
        self.owner = owner
        self.address = address
        self.waiting: deque[SimulatedSocket] = deque()
        self._network = network

    def accept(self) -> tuple[SimulatedSocket, Address]:
        """Return the connection that has waited longest."""
        if not self.waiting:
            raise BlockingIOError(errno.EAGAIN, "nobody waits")
        accepted = self.waiting.popleft()
        return accepted, accepted.getpeername()

    def getsockname(self) -> Address:
        """Return where it listens."""
        return self.address

    def fileno(self) -> int:
        """Say that the kernel does not know it."""
        raise OSError(errno.EBADF, "a simulated socket has no descriptor")

    def close(self) -> None:
        """Stop listening, and reset waiting connections."""
        self._network.forget_listener(self)
        for unaccepted in self.waiting:
            unaccepted.close()

    def is_readable(self) -> bool:
        """Return whether a connection waits."""
        return bool(self.waiting)

    def is_writable(self) -> bool:
        """Tell that a listener takes no bytes."""
        return False
