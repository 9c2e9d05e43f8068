"""A connection: requests cut anywhere, responses complete and in order, fair to all connections."""

import asyncio
import os
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.transport.connection_limits import ConnectionLimits
from ottla.wire.protocol_error import ProtocolError
from tests.unit.broker.serving import (
    Answer,
    a_while,
    answering,
    echo,
    frame,
    serving,
    until,
)

LARGE = os.urandom(200_000)


class Gate:
    """Responses that wait until the test releases them, by the body of their request."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.cancelled: list[bytes] = []
        self._released: dict[bytes, asyncio.Event] = {}

    async def __call__(self, body: bytes) -> Answer:
        self.begun.append(body)
        try:
            await self._event(body).wait()
        except asyncio.CancelledError:
            self.cancelled.append(body)
            raise
        return echo(body)

    def release(self, *bodies: bytes) -> None:
        for body in bodies:
            self._event(body).set()

    def _event(self, body: bytes) -> asyncio.Event:
        return self._released.setdefault(body, asyncio.Event())


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.binary(max_size=50) | st.just(LARGE[:200_000]), min_size=1, max_size=6),
    st.lists(st.floats(0, 1), max_size=20),
)
def test_requests_cut_anywhere_are_answered_in_order(
    bodies: list[bytes], cuts: list[float]
) -> None:
    stream = b"".join(map(frame, bodies))
    positions = [0, *sorted(int(cut * len(stream)) for cut in cuts), len(stream)]

    async def story() -> None:
        async with serving(answering(echo)) as running:
            client = await running.connect()
            for begin, end in pairwise(positions):
                await client.send(stream[begin:end])
                await asyncio.sleep(0.0001)
            assert [await client.receive_frame() for _ in bodies] == bodies

    asyncio.run(story())


def test_a_request_that_comes_byte_by_byte_is_answered() -> None:
    async def story() -> None:
        async with serving(answering(echo)) as running:
            client = await running.connect()
            for byte in frame(b"slowly"):
                await client.send(bytes([byte]))
                await asyncio.sleep(0.0005)
            assert await client.receive_frame() == b"slowly"

    asyncio.run(story())


def test_pipelined_requests_are_answered_in_order_even_if_the_last_is_ready_first() -> None:
    async def story() -> None:
        gate = Gate()
        async with serving(answering(gate)) as running:
            client = await running.connect()
            bodies = [b"first", b"second", b"third"]
            await client.send(b"".join(map(frame, bodies)))
            await until(lambda: gate.begun == bodies)
            for body in reversed(bodies):
                gate.release(body)
                await a_while()
            assert [await client.receive_frame() for _ in bodies] == bodies

    asyncio.run(story())


def test_many_more_requests_than_may_be_in_flight_are_all_answered() -> None:
    async def story() -> None:
        async with serving(answering(echo), ConnectionLimits(in_flight_requests_max=3)) as running:
            client = await running.connect()
            bodies = [b"%d" % number for number in range(5000)]
            await client.send(b"".join(map(frame, bodies)))
            assert [await client.receive_frame() for _ in bodies] == bodies

    asyncio.run(story())


def test_requests_without_an_answer_leave_no_gap() -> None:
    async def story() -> None:
        async with serving(answering(lambda body: None if body == b"-" else echo(body))) as running:
            client = await running.connect()
            await client.send(b"".join(map(frame, [b"-", b"one", b"-", b"-", b"two", b"-"])))
            assert [await client.receive_frame() for _ in range(2)] == [b"one", b"two"]

    asyncio.run(story())


def test_a_request_begins_only_when_the_one_before_it_waits() -> None:
    async def story() -> None:
        steps: list[bytes] = []

        async def slow(body: bytes) -> Answer:
            steps.append(b"begin " + body)
            await asyncio.sleep(0)
            steps.append(b"end " + body)
            return echo(body)

        async with serving(answering(slow)) as running:
            client = await running.connect()
            await client.send(frame(b"a") + frame(b"b"))
            await client.receive_frame()
            await client.receive_frame()
        assert steps.index(b"begin a") < steps.index(b"begin b")
        assert steps.index(b"end a") < steps.index(b"end b")

    asyncio.run(story())


def test_a_frame_belongs_to_its_receiver() -> None:
    async def story() -> None:
        kept: list[memoryview] = []

        async def keep(_: object, body: memoryview) -> Answer:
            await asyncio.sleep(0)
            body[0:1] = b"!"
            kept.append(body)
            return [frame(bytes(body))]

        async with serving(keep) as running:
            clients = [await running.connect() for _ in range(2)]
            for number in range(3):
                for name, client in zip(b"ab", clients, strict=True):
                    body = bytes([0, name, number])
                    assert await client.ask(body) == b"!" + body[1:]
        assert [bytes(body) for body in kept] == [
            bytes([ord("!"), name, number]) for number in range(3) for name in b"ab"
        ]

    asyncio.run(story())


def test_half_a_length_is_not_mixed_up_with_bytes_of_other_connections() -> None:
    async def story() -> None:
        async with serving(answering(echo)) as running:
            first, second = [await running.connect() for _ in range(2)]
            body = LARGE[:0x010203]
            await first.send(frame(body)[:3])
            await a_while()
            assert await second.ask(b"x" * 100) == b"x" * 100
            await first.send(frame(body)[3:])
            assert await first.receive_frame() == body

    asyncio.run(story())


def test_a_request_that_breaks_the_protocol_is_the_last_one() -> None:
    gate = Gate()

    def answer(body: bytes) -> object:
        if body == b"bad":
            raise ProtocolError("not a request")
        return gate(body)

    async def story() -> None:
        async with serving(answering(answer)) as running:  # type: ignore[arg-type]
            client, other = [await running.connect() for _ in range(2)]
            await client.send(b"".join(map(frame, [b"one", b"two", b"bad", b"after"])))
            await until(lambda: b"two" in gate.begun)
            gate.release(b"two", b"after", b"other")
            await a_while()
            gate.release(b"one")
            assert await client.receive_all() == frame(b"one") + frame(b"two")
            assert await other.ask(b"other") == b"other"
            assert running.reasons == {"invalid-frame": 1}

    asyncio.run(story())


def test_a_bug_in_one_request_ends_that_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    def answer(body: bytes) -> Answer:
        if body == b"bug":
            raise ZeroDivisionError("a bug of ours")
        return echo(body)

    async def story() -> None:
        async with serving(answering(answer)) as running:
            client, other = [await running.connect() for _ in range(2)]
            await client.send(frame(b"fine") + frame(b"bug") + frame(b"after"))
            assert await client.receive_all() == frame(b"fine")
            assert await other.ask(b"still here") == b"still here"
            assert running.reasons == {"request-failed": 1}

    asyncio.run(story())
    assert "a bug of ours" in caplog.text


@pytest.mark.parametrize("length", [-1, -(1 << 31), 101, (1 << 31) - 1])
def test_a_length_out_of_bounds_closes_after_the_answers_before_it(length: int) -> None:
    async def story() -> None:
        async with serving(answering(echo), ConnectionLimits(frame_bytes_max=100)) as running:
            client = await running.connect()
            await client.send(frame(b"fine") + length.to_bytes(4, signed=True) + b"rest")
            assert await client.receive_all() == frame(b"fine")
            assert running.reasons == {"invalid-frame": 1}

    asyncio.run(story())


def test_a_client_that_closed_its_sending_side_still_gets_responses() -> None:
    async def story() -> None:
        gate = Gate()
        async with serving(answering(gate)) as running:
            client = await running.connect()
            await client.send(frame(b"one") + frame(b"two") + b"\0\0")
            client.send_no_more()
            await until(lambda: gate.begun == [b"one", b"two"])
            gate.release(b"two", b"one")
            assert await client.receive_all() == frame(b"one") + frame(b"two")
            assert running.reasons == {"peer-closed": 1}

    asyncio.run(story())


def test_requests_sent_just_before_closing_are_begun_all_the_same() -> None:
    async def story() -> None:
        seen: list[bytes] = []
        async with serving(answering(seen.append)) as running:
            client = await running.connect()
            await client.send(b"".join(frame(b"%d" % number) for number in range(200)))
            client.close()
            await until(lambda: len(seen) == 200)
        assert seen == [b"%d" % number for number in range(200)]

    asyncio.run(story())


def test_a_request_of_a_closed_connection_may_end_within_a_limit() -> None:
    async def story() -> None:
        gate = Gate()
        limits = ConnectionLimits(farewell_ms_max=1000)
        async with serving(answering(gate), limits) as running:
            client = await running.connect()
            await client.send(frame(b"short") + frame(b"long"))
            await until(lambda: len(gate.begun) == 2)
            client.reset()
            await a_while()
            gate.release(b"short")
            await a_while()
            running.server.tick(0)
            running.server.tick(999)
            assert running.server.connection_count == 1
            running.server.tick(1000)
            assert running.server.connection_count == 0
            await a_while()
            assert gate.cancelled == [b"long"]

    asyncio.run(story())
