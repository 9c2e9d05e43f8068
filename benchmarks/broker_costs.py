"""The cost of requests and waiting consumers to a broker: CPU time of its whole process."""

import time
from collections.abc import Callable
from functools import partial
from selectors import EVENT_READ, DefaultSelector
from typing import Final

from benchmarks.broker_process import MeasuredBroker
from benchmarks.comparison import Unit
from benchmarks.wire_client import WireClient, fetch_frame

REQUESTS: Final = 20_000
PIPELINED: Final = 500
CONSUMERS: Final = 200
WATCHED_SECONDS: Final = 5.0
WAIT_SECONDS: Final = 0.5
"""The maximum wait of a fetch, the default of every client."""
MICROSECONDS_EACH: Final = Unit("\N{MICRO SIGN}s", 1, is_time=True)
PERCENT: Final = Unit("% of a core", 1, is_time=True)


class SmallRequests:
    """One request, sent repeatedly on a connection of its own."""

    def __init__(
        self, broker: MeasuredBroker, topic: str, frame: bytes, pipelined: int = PIPELINED
    ) -> None:
        self._broker = broker
        self._client = WireClient(broker.port)
        self._client.create_topic(topic)
        self._burst = frame * pipelined
        self._bursts = REQUESTS // pipelined
        self._answer_bytes = (len(self._client.ask(frame)) + 4) * pipelined

    def microseconds(self) -> float:
        """Send a round of requests; return the broker's CPU time for each."""
        return cpu_seconds(self._broker, self._talk) / REQUESTS * 1e6

    def _talk(self) -> None:
        for _ in range(self._bursts):
            self._client.socket.sendall(self._burst)
            self._client.skip_bytes(self._answer_bytes)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def cpu_seconds(broker: MeasuredBroker, work: Callable[[], object]) -> float:
    """Return the broker's CPU time during some work."""
    before = broker.cpu_seconds()
    work()
    return broker.cpu_seconds() - before


def waiting_percent(broker: MeasuredBroker, topic: str) -> float:
    """Return the percentage of a core that idle long-polling takes, each with a partition.

    The consumers have begun at different times, as consumers do.
    """
    admin = WireClient(broker.port)
    admin.create_topic(topic, CONSUMERS)
    clients = [WireClient(broker.port) for _ in range(CONSUMERS)]
    frames = [fetch_frame(topic, number, offset=number == 0) for number in range(CONSUMERS)]
    with DefaultSelector() as answered:
        for number, client in enumerate(clients):
            answered.register(client.socket, EVENT_READ, number)
            client.socket.sendall(frames[number])
            time.sleep(WAIT_SECONDS / CONSUMERS)
        poll_on = partial(_poll_on, clients, frames, answered)
        poll_on(20 * WAIT_SECONDS)
        began = time.perf_counter()
        busy_seconds = cpu_seconds(broker, lambda: poll_on(WATCHED_SECONDS))
        seconds = time.perf_counter() - began
    for client in (admin, *clients):
        client.close()
    return busy_seconds / seconds * 100


def _poll_on(
    clients: list[WireClient], frames: list[bytes], answered: DefaultSelector, seconds: float
) -> None:
    """Send the next fetch of every client as soon as it has a response, as consumers do."""
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        for key, _ in answered.select(WAIT_SECONDS):
            clients[key.data].answer()
            clients[key.data].socket.sendall(frames[key.data])
