"""Misbehaving clients: their resources are bounded, and other clients are not affected."""

import asyncio

import pytest

from ottla.broker.transport.connection_limits import ConnectionLimits
from ottla.wire.frames import frame_prefix
from tests.unit.broker.serving import (
    Answer,
    Client,
    Serving,
    a_while,
    answering,
    echo,
    frame,
    serving,
    until,
)

NEVER_MS = 10**9


def test_a_peer_that_never_reads_is_read_from_no_more_and_closed_in_the_end() -> None:
    answer_bytes = 10_000
    begun = 0

    def answer(_: bytes) -> Answer:
        nonlocal begun
        begun += 1
        return [frame(bytes(answer_bytes))]

    limits = ConnectionLimits(
        in_flight_requests_max=4, output_bytes_max=20_000, stalled_ms_max=5000
    )

    async def story() -> None:
        async with serving(answering(answer), limits) as running:
            client = await running.connect(has_small_buffers=True)
            other = await running.connect()
            await client.send_while_taken(frame(bytes(1000)))
            (connection, _) = running.server._connections
            held_bytes = connection._outgoing.unsent_bytes
            assert 20_000 <= held_bytes < 20_000 + 4 * (answer_bytes + 4)
            begun_then = begun
            running.server.tick(0)
            running.server.tick(4999)
            await a_while()
            assert begun == begun_then
            assert connection._outgoing.unsent_bytes == held_bytes
            assert await other.ask(b"fine") == frame(bytes(answer_bytes))[4:]
            assert running.server.connection_count == 2
            running.server.tick(5000)
            assert running.server.connection_count == 1
            assert running.reasons == {"stalled": 1}

    asyncio.run(story())


def test_a_peer_that_reads_a_little_now_and_then_has_stalled_too() -> None:
    limits = ConnectionLimits(stalled_ms_max=5000)

    async def story() -> None:
        async with serving(answering(lambda _: [frame(bytes(8 << 20))]), limits) as running:
            client = await running.connect(has_small_buffers=True)
            await client.send(frame(b"much"))
            await until(lambda: any(it._is_writing for it in running.server._connections))
            for now_ms in range(0, 5000, 1000):
                await client.receive(4000)
                await a_while()
                running.server.tick(now_ms)
            assert running.server.connection_count == 1
            running.server.tick(5000)
            assert running.reasons == {"stalled": 1}

    asyncio.run(story())


def test_a_peer_that_reads_slowly_but_steadily_is_served() -> None:
    size_bytes = 1 << 20

    async def story() -> None:
        limits = ConnectionLimits(stalled_ms_max=5000, output_bytes_max=1000)
        async with serving(answering(lambda _: [frame(bytes(size_bytes))]), limits) as running:
            client = await running.connect(has_small_buffers=True)
            await client.send(frame(b"much"))
            for now_ms in range(0, 10 * 4000, 4000):
                running.server.tick(now_ms)
                await client.receive(100_000)
            await client.receive(size_bytes + 4 - 10 * 100_000)
            await client.send(frame(b"again"))
            assert await client.receive_frame() == bytes(size_bytes)

    asyncio.run(story())


def test_answers_that_wait_for_their_turn_count_as_output() -> None:
    first = asyncio.Event()
    begun: list[bytes] = []

    async def answer(body: bytes) -> Answer:
        begun.append(body)
        if len(begun) == 1:
            await first.wait()
        return [frame(bytes(1000))]

    limits = ConnectionLimits(in_flight_requests_max=100, output_bytes_max=5000)

    async def story() -> None:
        async with serving(answering(answer), limits) as running:
            client = await running.connect()
            for number in range(50):
                await client.send(frame(b"%d" % number))
                await asyncio.sleep(0.001)
            assert len(begun) == 1 + 5
            first.set()
            for _ in range(50):
                assert await client.receive_frame() == bytes(1000)

    asyncio.run(story())


def test_no_more_requests_than_allowed_are_in_flight() -> None:
    begun: list[bytes] = []

    async def story() -> None:
        released = asyncio.Event()

        async def answer(body: bytes) -> Answer:
            begun.append(body)
            await released.wait()
            return echo(body)

        limits = ConnectionLimits(in_flight_requests_max=7)
        async with serving(answering(answer), limits) as running:
            client = await running.connect()
            bodies = [b"%d" % number for number in range(20)]
            await client.send(b"".join(map(frame, bodies)))
            await a_while()
            assert begun == bodies[:7]
            running.server.tick(0)
            running.server.tick(NEVER_MS)  # the server causes this wait, so the peer is not idle
            released.set()
            assert [await client.receive_frame() for _ in bodies] == bodies

    asyncio.run(story())


async def _send_slowly(client: Client, running: Serving, data: bytes) -> None:
    for index in range(len(data)):
        await client.send(data[index : index + 1])
        await asyncio.sleep(0.001)
        running.server.tick(index * 1000)


@pytest.mark.parametrize("data", [b"\0\0\0", frame_prefix(100), frame(bytes(100))[:-1]])
def test_a_frame_that_does_not_come_to_an_end_closes_the_connection(data: bytes) -> None:
    async def story() -> None:
        limits = ConnectionLimits(frame_ms_max=len(data) * 1000)
        async with serving(answering(echo), limits) as running:
            client = await running.connect()
            await client.send(frame(b"before"))
            await client.receive_frame()
            await _send_slowly(client, running, data)
            assert running.server.connection_count == 1
            running.server.tick(len(data) * 1000)
            assert await client.is_closed()
            assert running.reasons == {"slow-frame": 1}

    asyncio.run(story())


def test_each_frame_has_its_own_time() -> None:
    async def story() -> None:
        async with serving(answering(echo), ConnectionLimits(frame_ms_max=5000)) as running:
            client = await running.connect()
            stream = frame(b"one") * 5
            for second, begin in enumerate(range(0, len(stream), 4)):
                await client.send(stream[begin : begin + 4])
                await a_while()
                running.server.tick(second * 1000)
            assert await client.receive(len(stream)) == stream

    asyncio.run(story())


def test_a_connection_with_nothing_to_do_is_closed() -> None:
    async def story() -> None:
        async with serving(answering(echo), ConnectionLimits(idle_ms_max=60_000)) as running:
            client = await running.connect()
            await until(lambda: running.server.connection_count == 1)
            running.server.tick(0)
            await client.ask(b"busy")
            running.server.tick(50_000)
            running.server.tick(109_999)
            assert running.server.connection_count == 1
            running.server.tick(110_000)
            assert await client.is_closed()
            assert running.reasons == {"idle": 1}

    asyncio.run(story())


def test_a_connection_that_waits_for_its_answer_is_not_idle() -> None:
    async def story() -> None:
        released = asyncio.Event()

        async def answer(body: bytes) -> Answer:
            await released.wait()
            return echo(body)

        async with serving(answering(answer)) as running:
            client = await running.connect()
            await client.send(frame(b"long poll"))
            await a_while()
            running.server.tick(0)
            running.server.tick(NEVER_MS)
            released.set()
            assert await client.receive_frame() == b"long poll"

    asyncio.run(story())


def test_when_memory_for_requests_is_full_small_requests_still_pass() -> None:
    async def story() -> None:
        limits = ConnectionLimits(request_bytes_max=300_000, frame_ms_max=5000)
        async with serving(answering(echo), limits) as running:
            memory = running.server._shared.memory
            large = bytes(250_000)
            greedy = [await running.connect() for _ in range(3)]
            senders = [asyncio.create_task(client.send(frame(large)[:-1])) for client in greedy]
            await until(lambda: memory.is_full)
            await a_while()
            assert memory.arriving_bytes < 300_000 + 250_000
            small = await running.connect()
            for number in range(10):
                assert await small.ask(b"%d" % number) == b"%d" % number
            running.server.tick(0)
            running.server.tick(5000)
            assert running.reasons["slow-frame"] >= 1
            for sender in senders:
                sender.cancel()

    asyncio.run(story())


def test_waiting_connections_continue_once_request_memory_is_free() -> None:
    async def story() -> None:
        gate = asyncio.Event()

        async def answer(body: bytes) -> Answer:
            await gate.wait()
            return [frame(body[:1])]

        limits = ConnectionLimits(request_bytes_max=300_000)
        async with serving(answering(answer), limits) as running:
            memory = running.server._shared.memory
            clients = [await running.connect() for _ in range(4)]
            asks = [
                asyncio.create_task(client.ask(b"%d\0" % number * 100_000))  # as in Produce
                for number, client in enumerate(clients)
            ]
            await until(lambda: memory.is_full)
            await a_while()
            assert memory.arriving_bytes + memory.answering_bytes < 300_000 + 200_000
            gate.set()
            assert await asyncio.gather(*asks) == [b"0", b"1", b"2", b"3"]

    asyncio.run(story())


def test_a_flood_of_empty_frames_takes_turns_with_other_connections() -> None:
    async def story() -> None:
        begun = 0

        def answer(body: bytes) -> Answer:
            nonlocal begun
            begun += body == b""
            return None if body == b"" else echo(body)

        async with serving(answering(answer)) as running:
            flooding, other = [await running.connect() for _ in range(2)]
            count = 16_000
            await flooding.send(frame(b"") * count)
            assert await other.ask(b"me too") == b"me too"
            assert begun < count
            await until(lambda: begun == count)

    asyncio.run(story())


def test_a_reader_that_wakes_up_gets_everything() -> None:
    async def story() -> None:
        limits = ConnectionLimits(in_flight_requests_max=4, output_bytes_max=20_000)
        async with serving(answering(lambda body: [frame(body * 10)]), limits) as running:
            client = await running.connect(has_small_buffers=True)
            body = bytes(1000)
            sent_bytes = await client.send_while_taken(frame(body))
            missing_bytes = -sent_bytes % len(frame(body))
            receiver = asyncio.create_task(
                client.receive((sent_bytes + missing_bytes) // len(frame(body)) * 10_004)
            )
            await client.send(frame(body)[len(frame(body)) - missing_bytes :])
            received = await receiver
            assert received == frame(body * 10) * (len(received) // 10_004)

    asyncio.run(story())
