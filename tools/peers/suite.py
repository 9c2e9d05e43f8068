"""The common parts of all suites: the list of tests, brokers, and the final verdict.

Beside this file there is one list for each suite: a test in each line, followed by the reason if
Ottla does not pass it. A reason that begins with `(3)` holds for three brokers only, and one with
`(1)` for a single broker. A test that would pass without any broker is not counted.
"""

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ottla.testing import Cluster
from ottla.testing.zookeeper_server import why_not

HERE: Final = Path(__file__).parent
FOLDER: Final = HERE.parents[1] / ".peers"
START_SECONDS_MAX: Final = 20
STOP_SECONDS_MAX: Final = 20

# Settings that the suites expect of brokers. A group waits a moment for its second member, because
# librdkafka's 0089 and 0113 subscribe two, and expect one rebalance.
SETTINGS: Final = {
    "auto.create.topics.enable": "true",
    "num.partitions": "4",
    "group.initial.rebalance.delay.ms": "500",
    "group.min.session.timeout.ms": "1000",
}
# kafka-python's tests expect that a broker has the id 0, and that its advertised listeners are set.
ALONE: Final = SETTINGS | {
    "node.id": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
_ONLY: Final = re.compile(r"\((\d+)\) +(.*)")


class Outcome(Enum):
    """How a test ended; a test that did not run at all is skipped."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers for a suite: their number, and their settings besides the usual ones."""

    count: int
    start: Callable[[Mapping[str, str]], AbstractContextManager[str]]
    """Gives their addresses, with a comma in between."""


Runner = Callable[[Brokers, Sequence[str]], Mapping[str, Outcome]]
"""Runs the named tests, and perhaps others, and returns their outcomes."""


@dataclass(frozen=True, slots=True)
class Suite:
    """Another project's tests: how to get them and how to run them, with their requirements."""

    name: str
    programs: tuple[str, ...]
    prepare: Callable[[], None]
    run: Runner


def expectations(suite: str, brokers: int = 1) -> dict[str, str]:
    """Return every test that counts with why it does not pass; with nothing if it does."""
    lines = (HERE / f"{suite}.txt").read_text().splitlines()
    parts = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return {test: _reason(text.strip(), brokers) for test, _, text in parts}


def _reason(text: str, brokers: int) -> str:
    only = _ONLY.fullmatch(text)
    if only is None:
        return text
    return only[2] if int(only[1]) == brokers else ""


def main(suite: Suite) -> int:
    """Run a suite, print its results, and return 1 if they differ from the list."""
    options = _options(suite)
    missing = [program for program in suite.programs if shutil.which(program) is None]
    if missing:
        print(f"{suite.name}: skipped, there is no {' and no '.join(missing)} here")
        return 0
    if options.brokers > 1 and not options.against and why_not():
        print(f"{suite.name}: skipped, {why_not()}")
        return 0
    FOLDER.mkdir(exist_ok=True)
    try:
        suite.prepare()
    except subprocess.CalledProcessError as error:
        print(f"{suite.name}: {error}; {FOLDER / 'build.log'} says more")
        return 1
    reasons = expectations(suite.name, options.brokers)
    tests = [test for test in reasons if test in options.tests or not options.tests]
    if options.against:
        brokers = Brokers(options.brokers, lambda _: nullcontext(options.against))
        return judge(suite.name, suite.run(brokers, tests), dict.fromkeys(tests, ""))
    brokers = Brokers(1, one) if options.brokers == 1 else Brokers(options.brokers, three)
    return judge(suite.name, suite.run(brokers, tests), {test: reasons[test] for test in tests})


def _options(suite: Suite) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"Run the tests of {suite.name} against Ottla.")
    parser.add_argument("--against", metavar="HOST:PORT", help="another broker, to compare with")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="how many of them")
    parser.add_argument("tests", nargs="*", help="some tests, by name, instead of all")
    return parser.parse_args()


def judge(suite: str, outcomes: Mapping[str, Outcome], reasons: Mapping[str, str]) -> int:
    """Print *x of y* and the names of failed tests; return 1 for any unexpected result."""
    surprises = 0
    lines = []
    for test, reason in reasons.items():
        outcome = outcomes.get(test, Outcome.SKIPPED)
        if outcome is Outcome.PASSED and reason:
            lines.append(f"  {test}: passed, although the list says: {reason}")
        elif outcome is not Outcome.PASSED:
            lines.append(f"  {test}: {outcome.value}, {reason or 'which was not expected'}")
        surprises += (outcome is Outcome.PASSED) == bool(reason)
    passed = sum(outcomes.get(test) is Outcome.PASSED for test in reasons)
    print(f"\n{suite}: {passed} of {len(reasons)}", *lines, sep="\n", flush=True)
    return int(bool(surprises))


def call(*words: str | Path, folder: Path, env: Mapping[str, str] | None = None) -> None:
    """Run a program to its end, with output to `build.log`; CalledProcessError if it fails."""
    program = shutil.which(words[0])
    assert program is not None, words[0]
    with (FOLDER / "build.log").open("ab") as log:
        command = [program, *words[1:]]
        env = os.environ | (env or {})
        subprocess.run(command, cwd=folder, env=env, check=True, stdout=log, stderr=log)


def download_source(package: str, version: str) -> Path:
    """Download a Python package's source distribution, unpack it, and return its directory."""
    name = f"{package.replace('-', '_')}-{version}"
    if not (FOLDER / name).exists():
        source = ("--no-deps", "--no-binary", package, f"{package}=={version}")
        call(sys.executable, "-m", "pip", "download", *source, folder=FOLDER)
        with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
            archive.extractall(FOLDER, filter="data")
    return FOLDER / name


@contextmanager
def three(settings: Mapping[str, str]) -> Iterator[str]:
    """Run three brokers with a ZooKeeper; topics are on all brokers by default."""
    with TemporaryDirectory(prefix="data-", dir=FOLDER, ignore_cleanup_errors=True) as folder:
        try:
            with Cluster(3, SETTINGS | dict(settings), data_dir=folder, zookeeper=True) as cluster:
                yield cluster.bootstrap_servers
        finally:
            for log in Path(folder).glob("broker-*.log"):
                shutil.copy(log, f"{folder}-{log.name}")


@contextmanager
def one(settings: Mapping[str, str]) -> Iterator[str]:
    """Run a broker process in a temporary directory; yield its address."""
    address = f"127.0.0.1:{free_port()}"
    settings = ALONE | {"advertised.listeners": f"PLAINTEXT://{address}"} | dict(settings)
    with TemporaryDirectory(prefix="data-", dir=FOLDER, ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", "ottla.cli.main", "start", "--listen", address]
        command += ["--data-dir", folder]
        for setting in settings.items():
            command += ["-X", "=".join(setting)]
        log = Path(f"{folder}.log")
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            _await_listening(process, log)
            yield address
        finally:
            process.terminate()
            process.wait(STOP_SECONDS_MAX)


def free_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_listening(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        if re.search(r"listening on", log.read_text()):
            return
        time.sleep(0.05)
    raise AssertionError(f"no broker in {START_SECONDS_MAX} s: {log.read_text()}")
