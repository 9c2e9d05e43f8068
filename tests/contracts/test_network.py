"""Both networks keep one contract."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from ottla.environment.network import ListeningSocket, Network, StreamSocket
from ottla.runtime.network import KernelNetwork
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.world import World

Story = Callable[["Place"], Awaitable[Any]]


class Place:
    """A machine that has a network, and a name on it."""

    def __init__(self, network: Network, host: str, loop: asyncio.AbstractEventLoop) -> None:
        self.network = network
        self.host = host
        self.loop = loop

    async def listen(self) -> tuple[ListeningSocket, int]:
        (listening,) = await self.network.listen(self.host, 0)
        return listening, listening.getsockname()[1]

    async def pair(self) -> tuple[StreamSocket, StreamSocket]:
        """Return both ends of a connection."""
        listening, port = await self.listen()
        near = await self.network.connect(self.host, port)
        far, _ = await self.accept(listening)
        listening.close()
        return near, far

    async def accept(self, listening: ListeningSocket) -> tuple[StreamSocket, Any]:
        await self.until(self.loop.add_reader, self.loop.remove_reader, listening)
        return listening.accept()

    async def receive(self, connected: StreamSocket, size_bytes: int = 1 << 16) -> bytes:
        """Return the next bytes; none at the end."""
        await self.until(self.loop.add_reader, self.loop.remove_reader, connected)
        buffer = bytearray(size_bytes)
        return bytes(buffer[: connected.recv_into(buffer)])

    async def receive_all(self, connected: StreamSocket) -> bytes:
        received = b""
        while data := await self.receive(connected):
            received += data
        return received

    async def until(self, add: Any, remove: Any, watched: Any) -> None:
        happened = self.loop.create_future()
        add(watched, lambda: happened.done() or happened.set_result(None))
        try:
            async with asyncio.timeout(20):
                await happened
        finally:
            remove(watched)


def run_really(story: Story) -> None:
    async def main() -> None:
        await story(Place(KernelNetwork(), "127.0.0.1", asyncio.get_running_loop()))

    asyncio.run(main())


def run_simulated(story: Story) -> None:
    world = World(1)

    async def program(machine: Machine) -> None:
        await story(Place(machine.network, machine.name, machine.loop))

    async def main() -> None:
        await world.machine("here").start(program)

    world.run(main())


@pytest.fixture(params=[run_really, run_simulated])
def run(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    return request.param


def fill(connected: StreamSocket) -> int:
    """Send until the socket accepts no more; return the number of bytes sent."""
    sent_bytes = 0
    try:
        while True:
            sent_bytes += connected.send(bytes(1 << 16))
    except BlockingIOError:
        return sent_bytes


async def go_on_sending(connected: StreamSocket) -> None:
    for _ in range(1000):
        connected.send(b"anybody?")
        await asyncio.sleep(0.001)


def test_bytes_arrive_in_their_order_in_both_directions(run: Callable[[Story], None]) -> None:
    async def story(place: Place) -> None:
        near, far = await place.pair()
        for word in (b"one ", bytearray(b"two "), memoryview(b"three")):
            assert near.send(word) == len(word)
        assert far.send(b"back") == 4
        assert await place.receive(near) == b"back"
        near.close()
        assert await place.receive_all(far) == b"one two three"
        far.close()

    run(story)


def test_a_reader_takes_as_little_as_it_wants(run: Callable[[Story], None]) -> None:
    async def story(place: Place) -> None:
        near, far = await place.pair()
        near.send(b"abcdef")
        assert await place.receive(far, 2) == b"ab"
        assert await place.receive(far, 1) == b"c"
        near.close()
        assert await place.receive_all(far) == b"def"
        far.close()

    run(story)


def test_an_operation_that_would_block_says_so(run: Callable[[Story], None]) -> None:
    async def story(place: Place) -> None:
        listening, _ = await place.listen()
        with pytest.raises(BlockingIOError):
            listening.accept()
        listening.close()
        near, far = await place.pair()
        with pytest.raises(BlockingIOError):
            near.recv_into(bytearray(1))
        near.close()
        far.close()

    run(story)


def test_accept_returns_the_address_of_the_peer(run: Callable[[Story], None]) -> None:
    async def story(place: Place) -> None:
        listening, port = await place.listen()
        near = await place.network.connect(place.host, port)
        far, address = await place.accept(listening)
        assert address[0] == place.host
        assert address[1] != port
        for opened in (listening, near, far):
            opened.close()

    run(story)


def test_what_the_peer_has_not_taken_is_counted_and_there_is_room_once_it_has(
    run: Callable[[Story], None],
) -> None:
    async def story(place: Place) -> None:
        near, far = await place.pair()
        assert place.network.untaken_bytes(near) == 0
        sent_bytes = fill(near)
        assert 0 < place.network.untaken_bytes(near) <= sent_bytes
        while sent_bytes:
            sent_bytes -= len(await place.receive(far))
        await place.until(place.loop.add_writer, place.loop.remove_writer, near)
        for _ in range(1000):
            if not place.network.untaken_bytes(near):
                break
            await asyncio.sleep(0.001)
        assert place.network.untaken_bytes(near) == 0
        near.close()
        far.close()

    run(story)


def test_sending_to_a_closed_peer_fails(
    run: Callable[[Story], None],
) -> None:
    async def story(place: Place) -> None:
        near, far = await place.pair()
        far.close()
        assert await place.receive(near) == b""
        with pytest.raises(ConnectionError):
            await go_on_sending(near)
        near.close()

    run(story)


def test_a_closed_socket_does_nothing_any_more_and_may_be_closed_again(
    run: Callable[[Story], None],
) -> None:
    async def story(place: Place) -> None:
        near, far = await place.pair()
        near.close()
        near.close()
        with pytest.raises(OSError, match=r"closed|descriptor"):
            near.send(b"x")
        with pytest.raises(OSError, match=r"closed|descriptor"):
            near.recv_into(bytearray(1))
        far.close()

    run(story)


def test_connections_without_a_listener_are_refused(run: Callable[[Story], None]) -> None:
    async def story(place: Place) -> None:
        listening, port = await place.listen()
        listening.close()
        with pytest.raises(ConnectionRefusedError):
            await place.network.connect(place.host, port)

    run(story)


def test_a_port_can_be_had_once_and_again_when_it_was_given_back(
    run: Callable[[Story], None],
) -> None:
    async def story(place: Place) -> None:
        listening, port = await place.listen()
        with pytest.raises(OSError, match="in use") as refused:
            await place.network.listen(place.host, port)
        assert refused.value.errno == errno.EADDRINUSE
        listening.close()
        (again,) = await place.network.listen(place.host, port)
        assert again.getsockname()[1] == port
        again.close()

    run(story)


def test_a_closed_listener_refuses_waiting_connections(
    run: Callable[[Story], None],
) -> None:
    async def story(place: Place) -> None:
        listening, port = await place.listen()
        near = await place.network.connect(place.host, port)
        listening.close()
        with suppress(ConnectionError):  # the kernel reports it by a reset
            assert await place.receive(near) == b""
        near.close()

    run(story)
