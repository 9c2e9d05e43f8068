"""Importing in a fresh process: CPU time beyond an interpreter that does nothing.

All contenders find their byte code ready, in a directory of this run's own.
"""

import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory

import ottla.wire
from benchmarks.comparison import MILLISECONDS, Case, Peer

TITLE = "Import in a fresh process, beyond a bare interpreter"
NEEDS_PYARROW = "ottla.wire.records.arrow"
CLIENTS = ("Producer", "Consumer", "Admin")
OTHER_CLIENTS = {
    "confluent-kafka": "confluent_kafka",
    "kafka-python": "kafka",
    "aiokafka": "aiokafka",
}
KAFKA_PYTHON = tuple(
    f"kafka.protocol.{name}" for name in ("admin", "consumer", "metadata", "producer", "sasl")
)


def cases() -> Iterator[Case]:
    """Yield one case for each measured import."""
    with TemporaryDirectory() as folder:
        child = partial(import_in_child, folder)
        for work, modules, asked in (
            ("every message, and the frames around them", ["ottla.wire.codec"], None),
            ("all of ottla.wire but the bridge to pyarrow", list(_without_pyarrow()), 150),
        ):
            yield Case(
                work=work,
                unit=MILLISECONDS,
                ours=partial(child, *modules),
                asked=asked,
                peers=(Peer("kafka-python", partial(child, *KAFKA_PYTHON)),),
                baseline=child,
                clock=children_seconds,
            )
        for name in CLIENTS:
            yield Case(
                work=f"from ottla import {name}",
                unit=MILLISECONDS,
                ours=partial(run_in_child, folder, f"from ottla import {name}"),
                asked=120,
                peers=tuple(
                    Peer(peer, partial(child, module)) for peer, module in OTHER_CLIENTS.items()
                ),
                baseline=child,
                clock=children_seconds,
            )


def import_in_child(bytecode_folder: str, *modules: str) -> None:
    """Start an interpreter that imports these and ends."""
    run_in_child(bytecode_folder, f"import {', '.join(modules)}" if modules else "")


def run_in_child(bytecode_folder: str, program: str) -> None:
    """Start an interpreter that runs this and ends."""
    environment = with_bytecode_in(bytecode_folder)
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def with_bytecode_in(folder: str) -> dict[str, str]:
    """Return the environment of children that keep their byte code in a directory."""
    # Empty, and not left out: the result may be merged into the environment of this process.
    return os.environ | {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}


def children_seconds() -> float:
    """Return the CPU time of all children that have ended."""
    usage = getrusage(RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _without_pyarrow() -> Iterator[str]:
    for module in pkgutil.walk_packages(ottla.wire.__path__, "ottla.wire."):
        if module.name != NEEDS_PYARROW:
            yield module.name
