"""A whole broker in a process of its own, on each event loop: requests, waiting consumers, stalls.

CPU time is the broker process's, with all threads and the kernel's share, without the client's.
"""

import os
import time
from collections.abc import Iterator
from importlib.util import find_spec
from tempfile import TemporaryDirectory

from benchmarks.broker_costs import (
    CONSUMERS,
    MICROSECONDS_EACH,
    PERCENT,
    PIPELINED,
    WATCHED_SECONDS,
    SmallRequests,
    waiting_percent,
)
from benchmarks.broker_process import running_broker
from benchmarks.comparison import Case, Unit
from benchmarks.wire_client import (
    TOPIC,
    WireClient,
    create_topic_frame,
    fetch_frame,
    produce_frame,
)

TITLE = "A broker in a process of its own"
ROUNDS = 3
PARTITIONS = 1000
MILLISECONDS = Unit("ms", 1, is_time=True)


def cases() -> Iterator[Case]:
    """Yield the cost of small requests and of waiting consumers, then stalls."""
    for loop in ("asyncio", "uvloop") if find_spec("uvloop") else ("asyncio",):
        for shape, frame in (("produce", produce_frame()), ("fetch", fetch_frame())):
            for order, pipelined, asked in (("pipelined", PIPELINED, 40), ("one by one", 1, None)):
                work = f"small {shape}, {order}, {loop}"
                figure = _small(loop, frame, pipelined)
                yield _case(work, MICROSECONDS_EACH, figure, asked)
        work = f"{CONSUMERS} consumers wait on {CONSUMERS} idle partitions, {loop}"
        yield _case(work, PERCENT, _waiting(loop), 3)
    work = f"longest stall, {PARTITIONS} partitions, traffic and background work"
    yield _case(work, MILLISECONDS, _longest_stall(), 20)


def _case(work: str, unit: Unit, figure: float, asked: float | None) -> Case:
    return Case(work=work, unit=unit, ours=lambda: None, figures=(figure,), asked=asked)


def _small(loop: str, frame: bytes, pipelined: int) -> float:
    """Return the CPU time of one request in microseconds, in the best of some rounds."""
    with TemporaryDirectory() as folder, running_broker(folder, loop) as broker:
        requests = SmallRequests(broker, TOPIC, frame, pipelined)
        requests.microseconds()  # not counted: loads code at first use
        best = min(requests.microseconds() for _ in range(ROUNDS))
        requests.close()
    return best


def _waiting(loop: str) -> float:
    with TemporaryDirectory() as folder, running_broker(folder, loop) as broker:
        return waiting_percent(broker, TOPIC)


def _longest_stall() -> float:
    """Return the loop's maximum delay while all background work is due all the time."""
    settings = {
        "log_retention_check_interval_ms": "200",
        "log_flush_offset_checkpoint_interval_ms": "200",
        "log_cleaner_backoff_ms": "50",
    }
    with TemporaryDirectory() as folder, running_broker(folder, **settings) as broker:
        client = WireClient(broker.port)
        configs = {"segment_ms": "100", "retention_ms": "2000", "flush_ms": "500"}
        for number in range(PARTITIONS // 100):
            policy = {"cleanup_policy": "compact" if number % 2 else "delete"}
            client.ask(create_topic_frame(f"{TOPIC}-{number}", 100, **configs, **policy))
        broker.lag_ms()
        _traffic(client, WATCHED_SECONDS)
        longest = broker.lag_ms()
        client.close()
    return longest


def _traffic(client: WireClient, seconds: float) -> None:
    deadline = time.perf_counter() + seconds
    value = os.urandom(1000)
    while time.perf_counter() < deadline:
        for number in range(PARTITIONS):
            topic, partition = f"{TOPIC}-{number // 100}", number % 100
            client.socket.sendall(produce_frame(topic, partition, value))
            client.answer()
