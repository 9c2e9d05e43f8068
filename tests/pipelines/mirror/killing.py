"""Kills mirrors with SIGKILL at random moments during writes, and compares both clusters.

python -m tests.pipelines.mirror.killing --rounds 100            # without Spark: quick
python -m tests.pipelines.mirror.killing --rounds 10 --spark     # `ottla mirror` itself
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ottla import Admin, Producer
from ottla.testing import Broker
from tests.pipelines.mirror.mirroring import (
    SETTINGS,
    Truth,
    mirror,
    options_of,
    records_by_partition,
)

TOPIC = "orders"
PARTITIONS = 2
END_SECONDS_MAX = 120
ROOT = Path(__file__).parents[3]


class Writer(threading.Thread):
    """Writes continuously: plain records, and transactions of which some are aborted."""

    def __init__(self, servers: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self._dice = random.Random(seed)
        self._is_over = threading.Event()
        self._number = 0

    def run(self) -> None:
        settings = {"bootstrap.servers": self._servers, "compression.type": "lz4"}
        with Producer(settings) as plain, Producer(settings, transactional_id="w") as careful:
            careful.init_transactions()
            while not self._is_over.wait(0.03):
                self._send(plain)
                careful.begin_transaction()
                self._send(careful)
                if self._dice.random() < 0.3:
                    careful.abort_transaction()
                else:
                    careful.commit_transaction()

    def _send(self, producer: Producer) -> None:
        for _ in range(self._dice.randint(1, 60)):
            producer.send(TOPIC, b"%d" % self._number, partition=self._number % PARTITIONS)
            self._number += 1
        producer.flush()

    def end(self) -> None:
        self._is_over.set()
        self.join()


def started(source: str, target: str, folder: str, *, is_spark: bool) -> "subprocess.Popen[str]":
    """Start a mirror, and return it when it copies."""
    words = ["tests.pipelines.mirror.copying_process", source, target, TOPIC]
    if is_spark:
        words = ["ottla.cli.main", "mirror", "--from", source, "--to", target, "-t", TOPIC]
        words += ["--checkpoint", folder, "--interval", "0.3", "--master", "local[2,4]"]
    process = subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if is_spark else None,
        text=True,
        start_new_session=True,
    )
    stream = process.stderr if is_spark else process.stdout
    assert stream is not None
    while line := stream.readline():
        if line.startswith(("copying", "ottla: lag")):
            return process
    raise AssertionError(f"the mirror has ended with {process.wait()}")


def kill(process: "subprocess.Popen[str]", *, is_alone: bool = False) -> None:
    """Kill a mirror with all its descendants; or the mirror alone, and wait for the others' end."""
    others = descendants(process.pid)
    for pid in [process.pid, *([] if is_alone else others)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    deadline = time.monotonic() + END_SECONDS_MAX
    while any(is_running(pid) for pid in others):
        assert time.monotonic() < deadline, "what the mirror has started runs on"
        time.sleep(0.1)


def descendants(pid: int) -> list[int]:
    """Return the child processes of a process, recursively."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                child = int(path.parent.name)
                found += [child, *descendants(child)]
    return found


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def rounds_of_killing(rounds: int, seed: int, *, is_spark: bool) -> int:
    """Kill a mirror this many times; return how many records were copied exactly once."""
    dice = random.Random(seed)
    with Broker(SETTINGS) as a, Broker(SETTINGS) as b, tempfile.TemporaryDirectory() as folder:
        source, target = a.bootstrap_servers, b.bootstrap_servers
        with Admin(bootstrap_servers=source) as admin:
            admin.topics.create(TOPIC, partitions=PARTITIONS)
        writer = Writer(source, seed)
        writer.start()
        try:
            for _ in range(rounds):
                process = started(source, target, folder, is_spark=is_spark)
                time.sleep(dice.random() * (3.0 if is_spark else 0.5))
                kill(process, is_alone=dice.random() < 0.5)
        finally:
            writer.end()
        return check_all(source, target)


def check_all(source: str, target: str) -> int:
    """Run a mirror to its end, and compare all records, and every offset's translation."""
    following = mirror(options_of(source, target, TOPIC))
    here, there = records_by_partition(source, TOPIC), records_by_partition(target, TOPIC)
    for number in range(PARTITIONS):
        truth = Truth(here[number], there[number])
        known = following._maps.of(following._copies[0].ident, number)
        for offset in range(max(here[number]) + 2):
            assert known.translate(offset) == truth.translate(offset), offset
    return sum(map(len, there.values()))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--spark", action="store_true")
    asked = parser.parse_args(arguments)
    sys.stdout.write(f"seed {asked.seed}\n")
    count = rounds_of_killing(asked.rounds, asked.seed, is_spark=asked.spark)
    sys.stdout.write(f"{asked.rounds} mirrors were killed, {count:,} records arrived once each\n")


if __name__ == "__main__":
    main()
