"""A world depends on its seed alone; its machines crash, pause and lose their network."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest

from ottla.simulation.world.machine import Machine
from ottla.simulation.world.network import (
    CONNECT_AGAIN_SECONDS,
    WINDOW_BYTES,
    SimulatedListener,
    SimulatedSocket,
)
from ottla.simulation.world.virtual_loop import DeadlockError, LivelockError
from ottla.simulation.world.world import World

PORT = 9092


async def receive(socket: SimulatedSocket, loop: asyncio.AbstractEventLoop) -> bytes:
    """Return the next bytes; none at the end."""
    readable = loop.create_future()

    def on_readable() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(socket, on_readable)
    try:
        await readable
    finally:
        loop.remove_reader(socket)
    buffer = bytearray(WINDOW_BYTES)
    return bytes(buffer[: socket.recv_into(buffer)])


async def accepted(listener: SimulatedListener, loop: Any) -> SimulatedSocket:
    """Return the next connection."""
    comes = loop.create_future()
    loop.add_reader(listener, comes.set_result, None)
    await comes
    loop.remove_reader(listener)
    return listener.accept()[0]


async def receive_exactly(socket: SimulatedSocket, size: int, loop: Any) -> bytes:
    received = b""
    while len(received) < size:
        data = await receive(socket, loop)
        if not data:
            raise ConnectionAbortedError("the other end is gone")
        received += data
    return received


async def echo(machine: Machine) -> None:
    """Send all received bytes back."""
    (listener,) = await machine.network.listen("", PORT)
    loop = machine.loop
    tasks = []

    async def serve(socket: SimulatedSocket) -> None:
        with suppress(ConnectionError):
            while data := await receive(socket, loop):
                socket.send(data)
        socket.close()

    def on_acceptable() -> None:
        accepted, _ = listener.accept()
        tasks.append(loop.create_task(serve(accepted)))

    loop.add_reader(listener, on_acceptable)
    await loop.create_future()


def on(world: World, name: str, story: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    async def program(_: Machine) -> Any:
        return await story

    return world.machine(name).start(program)


def test_time_passes_only_when_every_task_waits() -> None:
    world = World(1)

    async def story() -> float:
        await asyncio.sleep(86_400)
        return world.loop.time()

    assert world.run(story()) == 86_400


def test_timers_of_one_moment_ring_in_the_order_in_which_they_were_set() -> None:
    world = World(1)
    notified: list[int] = []

    async def story() -> None:
        for number in range(50):
            world.loop.call_at(5.0, notified.append, number)
        await asyncio.sleep(6)

    world.run(story())
    assert notified == list(range(50))


def test_a_world_in_which_nothing_can_happen_any_more_says_so() -> None:
    world = World(1)

    async def story() -> None:
        await world.loop.create_future()

    with pytest.raises(DeadlockError):
        world.run(story())


def test_a_world_in_which_time_stands_still_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.simulation.world.virtual_loop.STEPS_AT_ONE_MOMENT_MAX", 100)
    world = World(1)

    async def story() -> None:
        while True:  # noqa: ASYNC110 - the simulation must detect this busy loop
            await asyncio.sleep(0)

    with pytest.raises(LivelockError):
        world.run(story())


def test_bytes_come_back_in_their_order() -> None:
    world = World(3)
    world.network.link("client", "server").loss = 0.3
    sent = bytes(range(256)) * 40

    async def client() -> bytes:
        socket = await world.network.connect("server", PORT)
        for at in range(0, len(sent), 256):
            socket.send(sent[at : at + 256])
        return await receive_exactly(socket, len(sent), world.loop)

    async def story() -> bytes:
        world.machine("server").start(echo)
        await world.elapse(1)
        received: bytes = await on(world, "client", client())
        return received

    assert world.run(story()) == sent


def test_a_connect_without_a_listener_is_refused_and_without_a_machine_times_out() -> None:
    world = World(4)

    async def client() -> None:
        with pytest.raises(ConnectionRefusedError):
            await world.network.connect("server", PORT)
        world.network.block("server", "client")
        with pytest.raises(TimeoutError):
            await world.network.connect("server", PORT)

    async def story() -> None:
        await on(world, "client", client())

    world.run(story())


def test_a_blocked_link_holds_what_is_sent_until_it_is_unblocked() -> None:
    world = World(5)

    async def client() -> float:
        socket = await world.network.connect("server", PORT)
        world.network.block("client", "server")
        socket.send(b"held")
        world.loop.call_later(30, world.network.unblock, "client", "server")
        assert await receive_exactly(socket, 4, world.loop) == b"held"
        return world.loop.time()

    async def story() -> float:
        world.machine("server").start(echo)
        await world.elapse(1)
        heard_at: float = await on(world, "client", client())
        return heard_at

    assert 31 < world.run(story()) < 32


def test_a_killed_process_runs_no_finally_and_its_peers_see_the_end() -> None:
    world = World(6)
    ended: list[str] = []

    async def program(machine: Machine) -> None:
        try:
            await echo(machine)
        finally:
            ended.append("finally")

    async def client() -> bytes:
        socket = await world.network.connect("server", PORT)
        world.loop.call_later(1, world.machine("server").kill)
        return await receive(socket, world.loop)

    async def story() -> bytes:
        world.machine("server").start(program)
        await world.elapse(1)
        heard: bytes = await on(world, "client", client())
        assert not ended
        return heard

    assert world.run(story()) == b""


def test_a_task_in_a_context_of_its_own_dies_with_the_process_that_made_it() -> None:
    world = World(6)
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            ticks.append(world.loop.time())
            await world.elapse(1)

    async def program(machine: Machine) -> None:
        await machine.loop.create_task(tick(), context=Context())

    async def story() -> None:
        world.machine("server").start(program)
        await world.elapse(2.5)
        world.machine("server").kill()
        await world.elapse(2.5)

    world.run(story())
    assert ticks == [0, 1, 2]


def test_a_program_that_comes_to_its_end_gives_back_what_it_had() -> None:
    world = World(6)
    server = world.machine("server")

    async def short(machine: Machine) -> None:
        (listener,) = await machine.network.listen("", PORT)
        await receive(await accepted(listener, world.loop), world.loop)

    async def client() -> bytes:
        socket = await world.network.connect("server", PORT)
        socket.send(b"hello")
        return await receive(socket, world.loop)

    async def story() -> None:
        server.start(short)
        await world.elapse(1)
        assert await on(world, "client", client()) == b""
        await server.ended()
        assert not server.is_running
        server.start(echo)
        await world.elapse(1)
        assert await on(world, "another", client()) == b"hello"

    world.run(story())


def test_a_connect_cancelled_at_a_retry_has_no_effect() -> None:
    world = World(4)
    unexpected: list[dict[str, Any]] = []
    world.loop.set_exception_handler(lambda _, context: unexpected.append(context))

    async def client() -> None:
        world.network.block("server", "client")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(CONNECT_AGAIN_SECONDS[0]):
                await world.network.connect("server", PORT)

    async def story() -> None:
        await on(world, "client", client())
        await world.elapse(5)

    world.run(story())
    assert not unexpected


def test_a_machine_without_power_is_silent_and_resets_once_it_is_back() -> None:
    world = World(7)
    server = world.machine("server")

    async def client() -> float:
        socket = await world.network.connect("server", PORT)
        server.cut_power()
        socket.send(b"anybody?")
        world.loop.call_later(60, server.start, echo)
        with pytest.raises(ConnectionResetError):
            await receive(socket, world.loop)
        return world.loop.time()

    async def story() -> float:
        server.start(echo)
        await world.elapse(1)
        reset_at: float = await on(world, "client", client())
        return reset_at

    assert 61 < world.run(story()) < 62


def test_a_paused_process_answers_late_and_does_not_know() -> None:
    world = World(8)
    server = world.machine("server")

    async def client() -> float:
        socket = await world.network.connect("server", PORT)
        server.pause()
        socket.send(b"hello")
        world.loop.call_later(10, server.resume)
        assert await receive_exactly(socket, 5, world.loop) == b"hello"
        return world.loop.time()

    async def story() -> float:
        server.start(echo)
        await world.elapse(1)
        heard_at: float = await on(world, "client", client())
        return heard_at

    assert 11 < world.run(story()) < 12


def test_a_sender_has_to_wait_for_a_reader_that_does_not_read() -> None:
    world = World(9)

    async def silent(machine: Machine) -> None:
        await machine.network.listen("", PORT)
        await machine.loop.create_future()

    async def client() -> int:
        socket = await world.network.connect("server", PORT)
        socket.send(bytes(WINDOW_BYTES))
        with pytest.raises(BlockingIOError):
            socket.send(b"more")
        return socket.untaken_bytes

    async def story() -> int:
        world.machine("server").start(silent)
        await world.elapse(1)
        sent: int = await on(world, "client", client())
        return sent

    assert world.run(story()) == WINDOW_BYTES


def digest_of_a_busy_world(seed: int) -> str:
    """Run many clients against a server that is killed, paused and cut off."""
    world = World(seed)
    server = world.machine("server")

    async def client(number: int) -> None:
        for _ in range(20):
            try:
                socket = await world.network.connect("server", PORT)
                socket.send(b"x" * (number + 1) * 100)
                async with asyncio.timeout(2):
                    await receive_exactly(socket, (number + 1) * 100, world.loop)
                socket.close()
            except OSError:
                await world.elapse(0.1)

    async def story() -> None:
        server.start(echo)
        clients = [on(world, f"client-{n}", client(n)) for n in range(8)]
        for _ in range(3):
            await world.elapse(0.01)
            server.kill()
            await world.elapse(0.05)
            server.start(echo)
            server.pause()
            await world.elapse(0.05)
            server.resume()
        async with asyncio.TaskGroup() as group:
            for one in clients:
                group.create_task(asyncio.wait_for(one, 600))

    world.run(story())
    return world.trace.digest()


def test_equal_seeds_give_equal_runs_in_any_process_and_under_any_hash_seed() -> None:
    here = digest_of_a_busy_world(11)
    code = "from tests.unit.simulation.world.test_world import *; print(digest_of_a_busy_world(11))"
    there = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "0"},  # the hash seed of this process is random
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == here
    assert digest_of_a_busy_world(12) != here
