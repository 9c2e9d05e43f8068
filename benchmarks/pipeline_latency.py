"""How long a record takes through a pipeline: from `send` to a consumer of committed records.

Five records a second arrive at uneven intervals, after a warm-up. Ours is `ottla pipeline run`,
which writes exactly once. Quix Streams writes at least once, its default, and is fetched on demand
into a virtual environment of its own. All run on the same broker, one after the other.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from benchmarks.comparison import MILLISECONDS, Case, Peer
from ottla import Admin, Consumer, Producer
from ottla.testing import Broker
from tools.peers.suite import FOLDER

TITLE = "Pipelines, from a record to its result, at 5 records a second"
QUIX_VERSION: Final = "3.28.1"
QUIX: Final = "Quix Streams"
PYTHON: Final = FOLDER / f"quixstreams-{QUIX_VERSION}" / "bin" / "python"
SCRIPT: Final = Path(__file__).with_name("quix_pipeline.py")
PER_SECOND: Final = 5
WARM_UP_SECONDS: Final = 30
SECONDS: Final = 40
START_SECONDS_MAX: Final = 120
INSTALL_SECONDS_MAX: Final = 300
GOALS: Final = {"stateless": (80.0, 200.0), "windowed": (200.0, 500.0)}
FIGURES: Final = ("p50", "p95", "CPU time for a record")
DEFINITIONS: Final = {
    "stateless": """
from ottla.streams import stream

orders = stream("orders").json("amount long, sent long")
orders.filter("amount > 0").map(sent="sent").to("doubles")
""",
    "windowed": """
from ottla.streams import stream

orders = stream("orders").json("amount long, sent long").event_time()
windows = orders.group("amount % 10").window("1 second").updates()
windows.aggregate(sent="max(sent)").to("doubles")
""",
}


class Measured(NamedTuple):
    """The measurements of one run of a flow."""

    latencies_ms: tuple[float, ...]
    cpu_ms: float
    """CPU time of all its processes, for each record."""


def cases() -> Iterator[Case]:
    """Yield both kinds of flows, with different options of Spark's JVM."""
    has_quix = _has_quix()
    for kind, goals in GOALS.items():
        theirs = _measure(kind, _quix) if has_quix else None
        low = _rows(f"{kind}, --latency low", _measure_ours(kind, "low"))
        peers = (None,) * len(FIGURES) if theirs is None else _figures(theirs)
        for (work, figure), theirs_figure, goal in zip(low, peers, (*goals, None), strict=True):
            known = () if theirs_figure is None else (theirs_figure,)
            yield _case(work, figure, goal, (Peer(QUIX, _nothing, None, known),))
        for work, figure in _rows(f"{kind}, throughput", _measure_ours(kind, "throughput")):
            yield _case(work, figure)


def _rows(name: str, measured: Measured) -> list[tuple[str, float]]:
    named = zip(FIGURES, _figures(measured), strict=True)
    return [(f"{name}: {figure}", value) for figure, value in named]


def _figures(measured: Measured) -> tuple[float, ...]:
    ordered = sorted(measured.latencies_ms)
    return median(ordered), ordered[int(len(ordered) * 0.95)], measured.cpu_ms


def _case(
    work: str, figure: float, asked: float | None = None, peers: tuple[Peer, ...] = ()
) -> Case:
    return Case(
        work=work, unit=MILLISECONDS, ours=_nothing, asked=asked, figures=(figure,), peers=peers
    )


def _nothing() -> None:
    """Do nothing: the figures were measured beforehand."""


def _has_quix() -> bool:
    """Fetch Quix Streams once; return False, and print the reason, where that fails."""
    try:
        if not PYTHON.exists():
            FOLDER.mkdir(exist_ok=True)
            _call(sys.executable, "-m", "venv", str(PYTHON.parents[1]))
        if not (PYTHON.parent / "quix-ready").exists():
            _call(str(PYTHON), "-m", "pip", "install", "-q", f"quixstreams=={QUIX_VERSION}")
            (PYTHON.parent / "quix-ready").touch()
    except (OSError, subprocess.SubprocessError) as reason:
        print(f"{QUIX} is not measured: {reason}", flush=True)
        return False
    return True


def _call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_SECONDS_MAX)


def _ours(kind: str, servers: str, folder: Path, latency: str) -> "subprocess.Popen[bytes]":
    file = folder / f"{kind}.py"
    file.write_text(DEFINITIONS[kind])
    command = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", str(file)]
    command += ["--latency", latency, "--brokers", servers, "--state-dir", str(folder)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def _measure_ours(kind: str, latency: str) -> Measured:
    return _measure(kind, lambda kind, servers, folder: _ours(kind, servers, folder, latency))


def _quix(kind: str, servers: str, folder: Path) -> "subprocess.Popen[bytes]":
    command = [str(PYTHON), str(SCRIPT), kind, servers, str(folder / "state")]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _measure(kind: str, start: Callable[[str, str, Path], "subprocess.Popen[bytes]"]) -> Measured:
    with TemporaryDirectory() as folder, Broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.topics.create(["orders", "doubles"], partitions=2)
        running = start(kind, broker.bootstrap_servers, Path(folder))
        try:
            return _watch(running, broker.bootstrap_servers)
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait(START_SECONDS_MAX)


def _watch(running: "subprocess.Popen[bytes]", servers: str) -> Measured:
    stopping, seen = threading.Event(), threading.Event()
    latency_by_sent: dict[int, float] = {}
    watcher = threading.Thread(target=_read, args=(servers, latency_by_sent, seen, stopping))
    watcher.start()
    try:
        with Producer(bootstrap_servers=servers) as producer:
            deadline = time.monotonic() + START_SECONDS_MAX
            while not seen.is_set():
                assert running.poll() is None, "the pipeline has ended"
                assert time.monotonic() < deadline, "nothing came"
                _send(producer, 1)
            _send(producer, WARM_UP_SECONDS * PER_SECOND)
            begun, cpu = time.monotonic_ns(), _cpu_ms(running.pid)
            sent = _send(producer, SECONDS * PER_SECOND)
            cpu = _cpu_ms(running.pid) - cpu
            deadline = time.monotonic() + START_SECONDS_MAX
            while sent[-1] not in latency_by_sent and time.monotonic() < deadline:
                time.sleep(0.1)
    finally:
        stopping.set()
        watcher.join()
    found = tuple(ms for at, ms in latency_by_sent.items() if at >= begun)
    return Measured(found, cpu / len(sent))


def _send(producer: Producer, count: int) -> list[int]:
    sent = []
    for number in range(count):
        sent.append(time.monotonic_ns())
        row = {"amount": number + 1, "sent": sent[-1]}
        producer.send("orders", json.dumps(row), key=str(number % 10)).result()
        time.sleep(random.uniform(0.5, 1.5) / PER_SECOND)
    return sent


def _read(
    servers: str, latency_by_sent: dict[int, float], seen: threading.Event, stop: threading.Event
) -> None:
    with Consumer(
        bootstrap_servers=servers,
        group_id="watch",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.subscribe(["doubles"])
        while not stop.is_set():
            for record in consumer.poll(timeout=0.2):
                sent = json.loads(record.value or b"{}")["sent"]
                latency_by_sent.setdefault(sent, (time.monotonic_ns() - sent) / 1e6)
                seen.set()


def _cpu_ms(pid: int) -> float:
    """Return the CPU time of a process and its children, including ended children."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        children.setdefault(int(fields[1]), []).append(int(folder.name))
        ticks[int(folder.name)] = sum(map(int, fields[11:15]))
    total, left = 0, [pid]
    while left:
        process = left.pop()
        total += ticks.get(process, 0)
        left += children.get(process, [])
    return total * 1000 / os.sysconf("SC_CLK_TCK")
