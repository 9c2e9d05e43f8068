"""Hostile clients: their effect on a client at a steady rate, and the memory they take.

Another process produces a record and fetches it, a hundred times a second, while this process
attacks the broker. The first row has no attack: the machine's own delays. The figures are the
latencies of single requests of the steady client; memory is the peak of the broker's process.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from threading import Event, Thread

from benchmarks.broker_process import RunningBroker, running_broker
from benchmarks.comparison import MILLISECONDS, Case, Unit
from benchmarks.steady_client import SteadyClient
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.clients import attacks
from tests.clients.attacks import Address, crowd, flood

TITLE = "Hostile clients, and another at a steady rate"
SECONDS = 8
P99_MS_MAX = 50
MAX_MS_MAX = 250
MEGABYTES_MAX = 512
MEGABYTES_USED = Unit("MB", 1, is_time=True)
LIMITS = {"max.connections.per.ip": "20000", "max.connections": "20000"}
WATCH_SECONDS = 0.05

Attack = Callable[[Address, Callable[[], bool]], object]


def _flooding(frame: bytes, connections: int = 8, pipelined: int = 1, **how: int) -> Attack:
    def attack(address: Address, is_over: Callable[[], bool]) -> None:
        with crowd(address, connections, **how) as sockets:
            flood(sockets, frame, is_over, pipelined=pipelined, reads=not how)

    return attack


def _refused(frame: bytes) -> Attack:
    """Reconnect whenever the broker closes the connection."""

    def attack(address: Address, is_over: Callable[[], bool]) -> None:
        while not is_over():
            with crowd(address, 8) as sockets:
                flood(sockets, frame, is_over)

    return attack


def _waiting(address: Address, is_over: Callable[[], bool]) -> None:
    SteadyClient(address[1]).make_topic("crowded")
    frames = attacks.fetch(1, wait_ms=3_000) * attacks.WAITING_EACH
    with crowd(address, attacks.WAITING_CONNECTIONS) as sockets:
        for one in sockets:
            one.sendall(frames)
        while not is_over():
            time.sleep(WATCH_SECONDS)


def _committing(address: Address, is_over: Callable[[], bool]) -> None:
    """Commit offsets to a coordinator that is there: the first lookup creates it."""
    client = SteadyClient(address[1])
    lookup = FindCoordinatorRequest(key=attacks.GROUP)
    while client.ask(ApiKey.FIND_COORDINATOR, 3, lookup).error_code:
        time.sleep(WATCH_SECONDS)
    _flooding(attacks.offset_commit(19_900))(address, is_over)


def _nothing(_: Address, is_over: Callable[[], bool]) -> None:
    while not is_over():
        time.sleep(WATCH_SECONDS)


ATTACKS: dict[str, Callable[[], Attack]] = {
    "no attack": lambda: _nothing,
    "8 x ListOffsets of 34 MB": lambda: _refused(attacks.list_offsets(2_000_000)),
    "8 x Metadata of a million topics": lambda: _refused(attacks.metadata(1_000_000)),
    "8 x 300,000 tagged fields": lambda: _refused(attacks.tagged_list_offsets(1, 300_000)),
    "8 x ListOffsets of 249,000 partitions": lambda: _flooding(attacks.list_offsets(249_000)),
    "8 x OffsetFetch of 249,000 partitions": lambda: _flooding(attacks.offset_fetch(249_000)),
    "8 x OffsetCommit of 19,900 partitions": lambda: _committing,
    "100 x 32 x ListOffsets of 1,000": lambda: _flooding(attacks.list_offsets(1_000), 100, 32),
    "100 x 32 x Fetch of 240": lambda: _flooding(attacks.fetch(240), 100, 32),
    "48,000 waiting fetches": lambda: _waiting,
    "200 that never read 6.7 MB": lambda: _flooding(
        attacks.list_offsets(249_000), 200, receive_bytes=4096
    ),
}


def _all_in_turn() -> Attack:
    attacks_in_turn = [make() for make in ATTACKS.values()]

    def attack(address: Address, _: Callable[[], bool]) -> None:
        for one in attacks_in_turn:
            end = time.monotonic() + SECONDS
            one(address, partial(_is_past, end))

    return attack


def _is_past(end: float) -> bool:
    return time.monotonic() > end


def cases() -> Iterator[Case]:
    """Yield latencies and memory under each attack, and under all of them on one broker."""
    for name, make in (*ATTACKS.items(), ("all in turn, on one broker", _all_in_turn)):
        latencies_ms, megabytes = _measured(make())
        last = len(latencies_ms) - 1
        figures = (
            ("p50", MILLISECONDS, latencies_ms[last // 2], None),
            ("p99", MILLISECONDS, latencies_ms[last * 99 // 100], P99_MS_MAX),
            ("max", MILLISECONDS, latencies_ms[last], MAX_MS_MAX),
            ("memory", MEGABYTES_USED, megabytes, MEGABYTES_MAX),
        )
        for figure, unit, value, asked in figures:
            yield Case(
                work=f"{name}: {figure}",
                unit=unit,
                ours=lambda: None,
                figures=(value,),
                asked=asked,
            )


def _measured(attack: Attack) -> tuple[list[float], float]:
    """Return the latencies of the steady client, sorted, and the broker's memory."""
    with TemporaryDirectory() as folder, running_broker(f"{folder}/data", **LIMITS) as broker:
        command = [sys.executable, "-m", "benchmarks.steady_client", str(broker.port)]
        with (
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as client,
            _memory_of(broker) as peak,
        ):
            assert client.stdout is not None
            client.stdout.readline()  # it runs
            end = time.monotonic() + SECONDS
            attack(("127.0.0.1", broker.port), lambda: time.monotonic() > end)
            found, _ = client.communicate("\n")
    return sorted(json.loads(found)), peak[0]


@contextmanager
def _memory_of(broker: RunningBroker) -> Iterator[list[float]]:
    """Watch the memory of a broker; yield an object that has its peak at the end."""
    peak = [0.0]
    is_over = Event()

    def watch() -> None:
        while not is_over.wait(WATCH_SECONDS):
            peak[0] = max(peak[0], broker.memory_megabytes())

    watching = Thread(target=watch)
    watching.start()
    try:
        yield peak
    finally:
        is_over.set()
        watching.join()
