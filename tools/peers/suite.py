"""What every suite has in common: the tests that count, a broker, and a verdict in the end.

Beside this file there is one list for each suite: a test in each line and, behind those that Ottla
does not pass yet, the reason. A test that would pass without any broker is not counted.
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

HERE: Final = Path(__file__).parent
FOLDER: Final = HERE.parents[1] / ".peers"
START_SECONDS_MAX: Final = 20
STOP_SECONDS_MAX: Final = 20

# What the suites expect of a broker. That it has the number 0, and that somebody has said where
# clients find it, are expectations of kafka-python's. A group waits a moment for its second member,
# because librdkafka's 0089 and 0113 subscribe two, and expect one rebalance.
SETTINGS: Final = {
    "node.id": "0",
    "auto.create.topics.enable": "true",
    "num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "500",
    "group.min.session.timeout.ms": "1000",
}


class Outcome(Enum):
    """How a test ended; one that did not run at all is skipped."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


Brokers = Callable[[Mapping[str, str]], AbstractContextManager[str]]
"""Gives the address of a broker that has these settings besides the usual ones."""
Runner = Callable[[Brokers, Sequence[str]], Mapping[str, Outcome]]
"""Runs the named tests, and perhaps others, and tells how they ended."""


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests of other people: how to get them, how to run them, and what they need for that."""

    name: str
    programs: tuple[str, ...]
    prepare: Callable[[], None]
    run: Runner


def expectations(suite: str) -> dict[str, str]:
    """Return every test that counts with why it does not pass; with nothing if it does."""
    lines = (HERE / f"{suite}.txt").read_text().splitlines()
    parts = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return {test: reason.strip() for test, _, reason in parts}


def main(suite: Suite) -> int:
    """Run a suite, print what came out, and return 1 if it is not what the list says."""
    options = _options(suite)
    missing = [program for program in suite.programs if shutil.which(program) is None]
    if missing:
        print(f"{suite.name}: skipped, there is no {' and no '.join(missing)} here")
        return 0
    FOLDER.mkdir(exist_ok=True)
    try:
        suite.prepare()
    except subprocess.CalledProcessError as error:
        print(f"{suite.name}: {error}; {FOLDER / 'build.log'} says more")
        return 1
    reasons = expectations(suite.name)
    tests = [test for test in reasons if test in options.tests or not options.tests]
    if options.against:
        outcomes = suite.run(lambda _: nullcontext(options.against), tests)
        return judge(suite.name, outcomes, dict.fromkeys(tests, ""))
    return judge(suite.name, suite.run(ottla, tests), {test: reasons[test] for test in tests})


def _options(suite: Suite) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"Run the tests of {suite.name} against Ottla.")
    parser.add_argument("--against", metavar="HOST:PORT", help="another broker, to compare with")
    parser.add_argument("tests", nargs="*", help="some tests, by name, instead of all")
    return parser.parse_args()


def judge(suite: str, outcomes: Mapping[str, Outcome], reasons: Mapping[str, str]) -> int:
    """Print *x of y* and the names of what failed; return 1 if something is not as expected."""
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
    """Run a program to its end; `build.log` has what it says. CalledProcessError if it fails."""
    program = shutil.which(words[0])
    assert program is not None, words[0]
    with (FOLDER / "build.log").open("ab") as log:
        command = [program, *words[1:]]
        env = os.environ | (env or {})
        subprocess.run(command, cwd=folder, env=env, check=True, stdout=log, stderr=log)


def download_source(package: str, version: str) -> Path:
    """Download a Python package's source distribution, unpack it, and return its folder."""
    name = f"{package.replace('-', '_')}-{version}"
    if not (FOLDER / name).exists():
        source = ("--no-deps", "--no-binary", package, f"{package}=={version}")
        call(sys.executable, "-m", "pip", "download", *source, folder=FOLDER)
        with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
            archive.extractall(FOLDER, filter="data")
    return FOLDER / name


@contextmanager
def ottla(settings: Mapping[str, str]) -> Iterator[str]:
    """Run a broker as a process of its own, in a folder that goes with it; give its address."""
    address = f"127.0.0.1:{_free_port()}"
    settings = SETTINGS | {"advertised.listeners": f"PLAINTEXT://{address}"} | dict(settings)
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


def _free_port() -> int:
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
