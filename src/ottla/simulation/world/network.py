"""A network of machines with names, in the manner of TCP. The twin of `runtime.network`.

Sent data goes into the stream's queue, and the network delivers it on the other side, in order.
Within a direction nothing is lost, repeated or reordered; loss only takes time. A blocked link
holds its data until it is unblocked. When a process dies, its machine's kernel closes its
connections; a machine without power sends nothing: data to it waits, and once it is up again it
answers with a reset.

`END` is the end of a direction, `RESET` breaks both.
"""

import errno
from collections import deque
from contextvars import Context
from enum import Enum
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Final

from ottla.environment.disk import Buffer
from ottla.environment.network import ListeningSocket, StreamSocket
from ottla.simulation.world.process import Process, current_process
from ottla.simulation.world.virtual_loop import VirtualLoop

RETRANSMISSION_SECONDS = 0.2

WINDOW_BYTES: Final = 1 << 18
"""The bytes in flight or unread at which a sender has to wait."""
Address = tuple[str, int]

FIRST_FREE_PORT: Final = 40_000
CONNECT_AGAIN_SECONDS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""After these a connection attempt is given up, as kernels do."""


class Link:
    """How long packets take, and whether any get through.

    A lost packet is sent again: as with TCP, all that can be seen of it is the time it takes.
    """

    def __init__(self, stream: Random) -> None:
        self.delay_seconds = 0.0002
        self.jitter_seconds = 0.0002
        self.loss = 0.0
        self.is_blocked = False
        self._stream = stream

    def draw_delay(self) -> float:
        """Return how long the next packet takes."""
        delay = self.delay_seconds + self._stream.expovariate(1 / self.jitter_seconds)
        while self.loss and self._stream.random() < self.loss:
            delay += RETRANSMISSION_SECONDS
        return delay

    def cut(self, size_bytes: int) -> int:
        """Return how many of the sent bytes arrive at once; mostly all of them."""
        if size_bytes > 1 and self._stream.random() < 0.1:
            return self._stream.randrange(1, size_bytes)
        return size_bytes


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
            raise BlockingIOError(errno.EAGAIN, "no connection is waiting")
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


class SimulatedNetwork:
    """All machines, all connections, all links."""

    def __init__(self, loop: VirtualLoop, stream: Random) -> None:
        self._loop = loop
        self._stream = stream
        self._context = Context()  # the network's own doings belong to no process
        self._links: dict[tuple[str, str], Link] = {}
        self._down: dict[str, None] = {}
        self._listeners: dict[Address, SimulatedListener] = {}
        self._sockets: dict[SimulatedSocket, None] = {}
        self._ports: dict[str, int] = {}

    # -- the interface of machines --------------------------------------------------------------

    async def listen(self, _host: str, port: int) -> list[SimulatedListener]:
        """Listen on a port of the calling process' machine."""
        owner = current_process()
        address = (owner.name, port or self._free_port(owner.name))
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{address[0]}:{address[1]} is in use")
        listener = SimulatedListener(self, owner, address)
        self._listeners[address] = listener
        return [listener]

    async def connect(self, host: str, port: int) -> SimulatedSocket:
        """Connect to a machine by its name; as long as packets are lost, try again."""
        owner = current_process()
        for pause in CONNECT_AGAIN_SECONDS:
            there, back = self.link(owner.name, host), self.link(host, owner.name)
            if not (there.is_blocked or back.is_blocked or host in self._down):
                await self._loop.elapse(there.draw_delay() + back.draw_delay())
                return self._connected(owner, (host, port))
            await self._loop.elapse(pause)
        raise TimeoutError(errno.ETIMEDOUT, f"{host}:{port} does not answer")

    def set_send_buffer(self, connected: StreamSocket, size_bytes: int) -> None:
        """Change nothing: here all streams are of the same width."""

    def set_receive_buffer(self, listening: ListeningSocket, size_bytes: int) -> None:
        """Change nothing: here all streams are of the same width."""

    def untaken_bytes(self, connected: StreamSocket) -> int:
        """Return the bytes in flight or unread."""
        assert isinstance(connected, SimulatedSocket)
        return connected.untaken_bytes

    def _connected(self, owner: Process, address: Address) -> SimulatedSocket:
        listener = self._listeners.get(address)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"no listener at {address}")
        local = (owner.name, self._free_port(owner.name))
        near = SimulatedSocket(self, owner, owner.name, local)
        far = SimulatedSocket(self, listener.owner, address[0], address)
        near.peer, far.peer = far, near
        self._sockets[near] = self._sockets[far] = None
        listener.waiting.append(far)
        self._loop.touch(listener)
        return near

    def _free_port(self, machine: str) -> int:
        port = self._ports.get(machine, FIRST_FREE_PORT)
        self._ports[machine] = port + 1
        return port

    def forget_listener(self, listener: SimulatedListener) -> None:
        """Accept no more connections for it."""
        self._listeners.pop(listener.address, None)

    # -- faults ---------------------------------------------------------------------------------

    def link(self, source: str, target: str) -> Link:
        """Return the way from one machine to another, to look at or to make worse."""
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link(self._stream)
        return link

    def block(self, source: str, target: str) -> None:
        """Let nothing through in this direction."""
        self.link(source, target).is_blocked = True

    def unblock(self, source: str, target: str) -> None:
        """Unblock a link; held data goes first."""
        self.link(source, target).is_blocked = False
        for sender in list(self._sockets):
            if sender.machine == source and sender.peer and sender.peer.machine == target:
                self._schedule_all(sender)

    def reset(self, connected: SimulatedSocket) -> None:
        """Break a connection, for both ends."""
        for end in (connected, connected.peer):
            if end is not None:
                end.on_the_way.clear()
                self._put(end, Mark.RESET)

    def hold(self, connected: SimulatedSocket, seconds: float) -> None:
        """Delay data of one connection from now on; other connections keep their latency."""
        connected.arrives_at = max(connected.arrives_at, self._loop.time() + seconds)

    def connections(self, machine: str) -> list[SimulatedSocket]:
        """Return the open ends on a machine, oldest first."""
        return [end for end in self._sockets if end.machine == machine and end.is_open]

    def end_process(self, process: Process) -> None:
        """Close everything of a dead process, as its kernel does."""
        for listener in list(self._listeners.values()):
            if listener.owner is process:
                listener.close()
        for end in list(self._sockets):
            if end.owner is process:
                end.close()

    def power_off(self, process: Process) -> None:
        """Let a machine vanish without a word."""
        self._down[process.name] = None
        for listener in list(self._listeners.values()):
            if listener.owner is process:
                self.forget_listener(listener)
        for end in list(self._sockets):
            if end.owner is process:
                end.is_open = False
                end.on_the_way.clear()

    def power_on(self, machine: str) -> None:
        """Let a machine answer again; of the connections that it had it knows nothing."""
        del self._down[machine]
        for end in list(self._sockets):
            if end.machine == machine and not end.is_open and end.peer is not None:
                self._schedule_all(end.peer)

    # -- streams --------------------------------------------------------------------------------

    def transmit(self, sender: SimulatedSocket, piece: bytes | Mark) -> None:
        """Put something on the way, in as many packets as the link makes of it."""
        assert sender.peer is not None
        link = self.link(sender.machine, sender.peer.machine)
        if isinstance(piece, Mark):
            self._send(sender, piece, link)
            return
        first = link.cut(len(piece))
        self._send(sender, piece[:first], link)
        if first < len(piece):
            self._send(sender, piece[first:], link)

    def taken(self, receiver: SimulatedSocket, size_bytes: int) -> None:
        """Let the sender send more: the receiver has read this much."""
        sender = receiver.peer
        assert sender is not None
        sender.untaken_bytes -= size_bytes
        self._loop.touch(sender)

    def _send(self, sender: SimulatedSocket, piece: bytes | Mark, link: Link) -> None:
        sender.on_the_way.append(piece)
        self._schedule(sender, link)

    def _schedule_all(self, sender: SimulatedSocket) -> None:
        assert sender.peer is not None
        link = self.link(sender.machine, sender.peer.machine)
        for _ in range(len(sender.on_the_way)):
            self._schedule(sender, link)

    def _schedule(self, sender: SimulatedSocket, link: Link) -> None:
        """Schedule the arrival of the next piece, not before earlier ones."""
        arrives_at = max(self._loop.time() + link.draw_delay(), sender.arrives_at)
        sender.arrives_at = arrives_at
        self._loop.call_at(arrives_at, self._arrive, sender, context=self._context)

    def _arrive(self, sender: SimulatedSocket) -> None:
        receiver = sender.peer
        assert receiver is not None
        is_held = self.link(sender.machine, receiver.machine).is_blocked
        if is_held or receiver.machine in self._down or not sender.on_the_way:
            return
        piece = sender.on_the_way.popleft()
        self._loop.trace.add(self._loop.time(), sender.machine, receiver.machine, _told(piece))
        if receiver.is_open:
            self._put(receiver, piece)
        elif isinstance(piece, bytes):
            self._answer_with_reset(sender, receiver.machine)
        self._forget_if_over(sender)

    def _answer_with_reset(self, sender: SimulatedSocket, machine: str) -> None:
        """Answer data for an unknown connection with a reset; once, and only if it gets through."""
        link = self.link(machine, sender.machine)
        if not link.is_blocked:
            self._loop.call_later(
                link.draw_delay(), self._put, sender, Mark.RESET, context=self._context
            )

    def _put(self, receiver: SimulatedSocket, piece: bytes | Mark) -> None:
        receiver.arrive(piece)
        self._loop.touch(receiver)

    def _forget_if_over(self, end: SimulatedSocket) -> None:
        assert end.peer is not None
        both = (end, end.peer)
        if not any(one.is_open or one.on_the_way for one in both):
            for one in both:
                self._sockets.pop(one, None)


def _told(piece: bytes | Mark) -> int | str:
    return len(piece) if isinstance(piece, bytes) else piece.value
