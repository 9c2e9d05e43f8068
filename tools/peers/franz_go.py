"""The tests of franz-go's client, compiled by Go from its module."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from tools.peers.suite import FOLDER, Brokers, Outcome, Suite, call, main

MODULE: Final = "github.com/twmb/franz-go"
VERSION: Final = "v1.22.2"
HOME: Final = FOLDER / f"franz-go-{VERSION}"
PROGRAM: Final = HOME / "kgo.test"
RECORDS: Final = 20_000
TEST_SECONDS_MAX: Final = 300


def prepare() -> None:
    """Download and compile missing parts."""
    if PROGRAM.exists():
        return
    HOME.mkdir(exist_ok=True)
    package = f"{MODULE}/pkg/kgo"
    (HOME / "go.mod").write_text("module peers\n")
    call("go", "get", "-t", f"{package}@{VERSION}", folder=HOME)
    call("go", "test", "-c", "-o", PROGRAM, package, folder=HOME)


def run(brokers: Brokers, tests: Sequence[str]) -> Mapping[str, Outcome]:
    """Run each test in a process of its own, so that a panic ends no other test."""
    settings = {"KGO_TEST_RF": str(brokers.count), "KGO_TEST_RECORDS": str(RECORDS)}
    with brokers.start({}) as addresses:
        env = os.environ | settings | {"KGO_SEEDS": addresses}
        return {test: _run(test, env) for test in tests}


def _run(test: str, env: Mapping[str, str]) -> Outcome:
    words = ["-test.v", "-test.run", f"^{test}$", "-test.timeout", f"{TEST_SECONDS_MAX}s"]
    log = HOME / f"{test}.log"
    with log.open("wb") as output:
        done = subprocess.run(
            [PROGRAM, *words], cwd=HOME, env=env, stdout=output, stderr=output, check=False
        )
    if done.returncode != 0:
        return Outcome.FAILED
    return Outcome.SKIPPED if f"--- SKIP: {test} " in log.read_text() else Outcome.PASSED


if __name__ == "__main__":
    sys.exit(main(Suite("franz-go", ("go",), prepare, run)))
