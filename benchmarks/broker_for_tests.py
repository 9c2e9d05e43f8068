"""A broker for users' tests: from its start to an appended record, in wall time.

Topics are created beforehand by CreateTopics, as a test would; the first start of a process is not
among the rounds that count, because its imports are measured separately.
"""

import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.comparison import MILLISECONDS, Case
from benchmarks.wire_client import WireClient, create_topic_frame, produce_frame
from ottla.testing import Broker

TITLE = "A broker for tests"
STARTED_MS_MAX = 300
IMPORT = "import ottla.testing.broker"
ROUNDS = 5


def cases() -> Iterator[Case]:
    """Yield a start and stop in this process, and the imports of a broker."""
    yield Case(
        work="start, create a topic, append a record, stop",
        unit=MILLISECONDS,
        ours=live,
        asked=STARTED_MS_MAX,
        clock=time.perf_counter,
        rounds=ROUNDS,
    )
    yield Case(
        work="import it all in a fresh process",
        unit=MILLISECONDS,
        ours=lambda: run_python(IMPORT),
        baseline=lambda: run_python(""),
        clock=time.perf_counter,
        rounds=ROUNDS,
    )


def live() -> None:
    """Start a broker, use it and stop it."""
    with Broker() as broker:
        client = WireClient(broker.port)
        client.ask(create_topic_frame())
        client.ask(produce_frame())
        client.close()


def run_python(program: str) -> None:
    """Run a program in an interpreter of its own."""
    subprocess.run([sys.executable, "-c", program], check=True)
