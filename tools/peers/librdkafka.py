"""The test runner of librdkafka, built from the sources that its JavaScript package carries."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from tools.peers.suite import FOLDER, Brokers, Outcome, Suite, call, download_source, main

PACKAGE: Final = "@confluentinc/kafka-javascript"
VERSION: Final = "1.10.1"
HOME: Final = FOLDER / f"kafka-javascript-{VERSION}"
SOURCES: Final = HOME / "package" / "deps" / "librdkafka"
TESTS: Final = SOURCES / "tests"
PROGRAMS: Final = ("npm", "make", "gcc", "g++")
RAPIDJSON: Final = ("python-rapidjson", "1.25")
NO_AUTO_CREATE: Final = {
    "0045_subscribe_update_non_exist_and_partchange",
    "0045_subscribe_update_topic_remove",
    "0107_topic_recreate",
    "0111_delay_create_topics",
}
"""The entries of librdkafka's own table for brokers without automatic topic creation."""
NUMBER_CHARACTERS: Final = 4
TEST_SECONDS_MAX: Final = 900

_OUTCOME_BY_STATE: Final = {"PASSED": Outcome.PASSED, "SKIPPED": Outcome.SKIPPED}


def prepare() -> None:
    """Download and compile missing parts."""
    if (TESTS / "test-runner").exists():
        return
    HOME.mkdir(exist_ok=True)
    call("npm", "pack", f"{PACKAGE}@{VERSION}", folder=HOME)
    (archive,) = HOME.glob("*.tgz")
    with tarfile.open(archive) as files:
        files.extractall(HOME, filter="data")
    # Some tests read statistics by RapidJSON, and skip themselves without it.
    headers = download_source(*RAPIDJSON) / "rapidjson" / "include"
    call(SOURCES / "configure", folder=SOURCES, env={"CPPFLAGS": f"-I{headers}"})
    call("make", "libs", folder=SOURCES)
    call("make", "-C", "tests", "build", folder=SOURCES)


def run(brokers: Brokers, tests: Sequence[str]) -> Mapping[str, Outcome]:
    """Run each number in a process of its own, which a failure may end."""
    usual = [test for test in tests if test not in NO_AUTO_CREATE]
    others = [test for test in tests if test in NO_AUTO_CREATE]
    strict = brokers.start({"auto.create.topics.enable": "false"})
    return {
        **_run_scenario("default", brokers.start({}), usual),
        **_run_scenario("noautocreate", strict, others),
    }


def _run_scenario(
    scenario: str, brokers: AbstractContextManager[str], tests: Collection[str]
) -> dict[str, Outcome]:
    if not tests:
        return {}
    settings = HOME / f"{scenario}.conf"
    outcomes: dict[str, Outcome] = {}
    with brokers as addresses:
        settings.write_text(f"metadata.broker.list={addresses}\n")
        env = os.environ | {
            "KAFKA_PATH": str(_kafka_folder()),
            "ZK_ADDRESS": addresses,  # which the tests, thinking of an old Kafka, give to its tools
            "PYTHONPATH": str(FOLDER.parent),
            "RDKAFKA_TEST_CONF": str(settings),
            "TEST_SCENARIO": scenario,
            "LD_LIBRARY_PATH": f"{SOURCES / 'src'}:{SOURCES / 'src-cpp'}",
        }
        for number in sorted({test[:NUMBER_CHARACTERS] for test in tests}):
            outcomes |= _run(number, env)
    return {test: outcome for test, outcome in outcomes.items() if test in tests}


def _kafka_folder() -> Path:
    """Return a directory with the scripts of a Kafka distribution that the tests call."""
    script = HOME / "kafka" / "bin" / "kafka-topics.sh"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m tools.peers.kafka_topics "$@"\n')
    script.chmod(0o755)
    return script.parents[1]


def _run(number: str, env: Mapping[str, str]) -> Mapping[str, Outcome]:
    """Run the tests of one number, the smallest unit of the runner."""
    report = HOME / f"{number}.json"
    report.unlink(missing_ok=True)
    with (HOME / f"{number}.log").open("wb") as output:
        process = subprocess.Popen(
            [TESTS / "test-runner", "-p1", "-L"],
            cwd=TESTS,
            env={**env, "TESTS": number, "TEST_REPORT": str(report)},
            stdout=output,
            stderr=output,
        )
        try:
            process.wait(TEST_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if not report.exists():
        return {}
    rows = json.loads(report.read_text())["tests"].values()
    return {
        row["name"]: _OUTCOME_BY_STATE.get(row["state"], Outcome.FAILED)
        for row in rows
        if row["name"].startswith(number)
    }


if __name__ == "__main__":
    sys.exit(main(Suite("librdkafka", PROGRAMS, prepare, run)))
