"""The time to the first output: of the demo, and of another pipeline on the machine.

The demo starts with an empty cache, so that no class archive helps, and the time is printed by the
demo itself: from its first line to its first result, a broker and Spark included. After that,
`ottla pipeline run --quick` runs a pipeline, timed from the call to its first written record.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.comparison import SECONDS, Case
from ottla import Admin, Consumer, Producer
from ottla.testing import Broker

TITLE = "Pipelines, from nothing to their first result"
ROUNDS: Final = 3
RECORDS: Final = 1_000
SECONDS_MAX: Final = 120
FIRST: Final = re.compile(r"first result came after ([\d.]+) s")
DEFINITION: Final = """
from ottla.streams import stream

stream("orders").json("amount long").filter("amount > 10").map(double="2 * amount").to("doubles")
"""


def cases() -> Iterator[Case]:
    """Yield both, the demo first: it writes the class archive that later starts use."""
    with TemporaryDirectory() as cache:
        environment = {**os.environ, "OTTLA_CACHE_DIR": cache}
        yield Case(
            work="demo, nothing prepared",
            unit=SECONDS,
            ours=_nothing,
            asked=20.0,
            figures=(_demo(environment),),
        )
        yield Case(
            work="another pipeline",
            unit=SECONDS,
            ours=_nothing,
            asked=8.0,
            figures=tuple(_pipeline(environment) for _ in range(ROUNDS)),
        )


def _nothing() -> None:
    """Do nothing: the figures were measured beforehand."""


def _demo(environment: dict[str, str]) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    found = FIRST.search(done.stdout)
    assert found is not None, done.stdout
    return float(found[1])


def _pipeline(environment: dict[str, str]) -> float:
    with TemporaryDirectory() as folder, Broker() as broker:
        servers = broker.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.topics.create(["orders", "doubles"], partitions=2)
        with Producer(bootstrap_servers=servers) as producer:
            producer.send_many("orders", [f'{{"amount": {number}}}' for number in range(RECORDS)])
        file = Path(folder) / "doubles.py"
        file.write_text(DEFINITION)
        command = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", str(file), "--quick"]
        begun = time.perf_counter()
        running = subprocess.Popen(
            [*command, "--brokers", servers, "--state-dir", folder],
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        try:
            _read_one(servers)
            return time.perf_counter() - begun
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait(SECONDS_MAX)


def _read_one(servers: str) -> None:
    with Consumer(
        bootstrap_servers=servers,
        group_id="first",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.subscribe(["doubles"])
        assert any(True for _ in consumer.records(timeout=SECONDS_MAX)), "nothing came"
