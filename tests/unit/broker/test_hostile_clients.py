"""Clients that act randomly: the server serves the next client, and leaks nothing."""

import asyncio
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.transport.connection_limits import ConnectionLimits
from ottla.wire.protocol_error import ProtocolError
from tests.unit.broker.serving import Answer, Client, Serving, answering, echo, frame, serving

CLIENTS = 3
LARGE = bytes(300_000)
LIMITS = ConnectionLimits(
    frame_bytes_max=1 << 20,
    in_flight_requests_max=3,
    output_bytes_max=5000,
    request_bytes_max=400_000,
    connections_max=CLIENTS + 1,
)
SENT = {
    "small": frame(b"small"),
    "flood": frame(b"flood") * 500,
    "large": frame(LARGE),
    "half": frame(LARGE)[:150_000],
    "byte": b"\0",
    "empty": frame(b""),
    "garbage": b"GET / HTTP/1.1\r\n\r\n",
    "negative": b"\xff\xff\xff\xff",
    "refused": frame(b"refused"),
    "bug": frame(b"bug"),
    "silent": frame(b"silent"),
    "slow": frame(b"slow"),
}
ACTIONS = [*SENT, "read", "send no more", "close", "reset", "connect", "tick", "wait"]


async def answer(body: bytes) -> Answer:
    if body == b"refused":
        raise ProtocolError("refused")
    if body == b"bug":
        raise ZeroDivisionError
    if body == b"silent":
        return None
    if body == b"slow":
        await asyncio.sleep(0.001)
    return echo(body)


class Troublemaker:
    """Performs a sequence of actions, and ignores their errors."""

    def __init__(self, running: Serving) -> None:
        self._running = running
        self._client: Client | None = None

    async def do(self, action: str) -> None:
        if self._client is None or action == "connect":
            await self._connect()
        assert self._client is not None
        with suppress(OSError):
            if action in SENT:
                self._client.socket.send(SENT[action])
            elif action == "read":
                self._client.socket.recv(1000)
            elif action == "send no more":
                self._client.send_no_more()
            elif action in {"close", "reset"}:
                getattr(self._client, action)()
                self._client = None

    async def _connect(self) -> None:
        self._client = await self._running.connect(has_small_buffers=True)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, CLIENTS - 1), st.sampled_from(ACTIONS)), max_size=40),
)
def test_the_server_survives_any_client(story: list[tuple[int, str]]) -> None:
    async def play() -> None:
        async with serving(answering(answer), LIMITS) as running:
            clients = [Troublemaker(running) for _ in range(CLIENTS)]
            for step, (index, action) in enumerate(story):
                if action == "tick":
                    running.server.tick(step * 20_000)
                elif action == "wait":
                    await asyncio.sleep(0.001)
                else:
                    await clients[index].do(action)
                    await asyncio.sleep(0)
            running.disconnect()
            last = await running.connect()
            while not (answered := await _asked(last)):
                last = await running.connect()
            assert answered == b"next"

    asyncio.run(play())


async def _asked(client: Client) -> bytes:
    """Send a request; return no bytes if earlier connections still occupy the limit."""
    try:
        return await client.ask(b"next")
    except ConnectionError:
        return b""
