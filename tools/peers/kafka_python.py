"""The integration tests of kafka-python, from its source distribution.

Two small modules that the tests import are not in the distribution. Their substitutes are written
here: the brokers run already, so the modules have to start no servers.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree import ElementTree

from tools.peers.suite import FOLDER, Brokers, Outcome, Suite, call, download_source, main

VERSION: Final = "3.0.12"
HOME: Final = FOLDER / f"kafka_python-{VERSION}"
PYTHON: Final = FOLDER / "kafka-python" / "bin" / "python"
KAFKA_VERSION: Final = "4.3.0"
TEST_SECONDS_MAX: Final = 60

_SERVICE: Final = '''\
"""Stands in for a module that starts brokers: here one is running already."""


class ExternalService:
    def __init__(self, host, port):
        self.host = host
        self.port = port


class SpawnedService:
    def __init__(self, *arguments):
        raise RuntimeError("only a broker that runs already can be tested")
'''
_REPLICAS: Final = '''\
"""Topics have as many replicas as there are brokers; the tests know of one broker only."""

import os

from test.integration import fixtures

create = fixtures._create_topics_via_admin


def create_replicated(broker, names, partitions, _):
    create(broker, names, partitions, int(os.environ["KAFKA_REPLICAS"]))


fixtures._create_topics_via_admin = create_replicated
'''
_OUTCOME_BY_TAG: Final = {
    "failure": Outcome.FAILED,
    "error": Outcome.FAILED,
    "skipped": Outcome.SKIPPED,
}


def prepare() -> None:
    """Download, unpack and install missing parts."""
    home = download_source("kafka-python", VERSION)
    (home / "test" / "__init__.py").touch()
    (home / "test" / "service.py").write_text(_SERVICE)
    (home / "test" / "replicas.py").write_text(_REPLICAS)
    if not PYTHON.exists():
        call(sys.executable, "-m", "venv", PYTHON.parents[1], folder=FOLDER)
        extras = f"{home}[testing,lz4,snappy,zstd]"
        call(PYTHON, "-m", "pip", "install", extras, folder=FOLDER)


def run(brokers: Brokers, tests: Sequence[str]) -> Mapping[str, Outcome]:
    """Run the tests in one process, as their authors do."""
    with brokers.start({}) as addresses:
        return _run(addresses.split(",")[0], brokers.count, tests)


def _run(address: str, replicas: int, tests: Sequence[str]) -> Mapping[str, Outcome]:
    report = FOLDER / "kafka-python.xml"
    options = ["--timeout-method=signal", f"--timeout={TEST_SECONDS_MAX}", f"--junitxml={report}"]
    options += ["--quiet", "--tb=short", "--show-capture=log"]
    options += ["-p", "no:cacheprovider", "-p", "test.replicas"]
    env = os.environ | {
        "KAFKA_URI": f"kafka://{address}",
        "KAFKA_REPLICAS": str(replicas),
        "KAFKA_ROOT": str(HOME),
        "KAFKA_VERSION": KAFKA_VERSION,
    }
    names = " or ".join(sorted({test.partition("[")[0] for test in tests}))
    command = [str(PYTHON), "-m", "pytest", "test/integration", *options, "-k", names]
    with (FOLDER / "kafka-python.log").open("wb") as output:
        subprocess.run(command, cwd=HOME, env=env, stdout=output, stderr=output, check=False)
    cases = ElementTree.parse(report).iter("testcase")  # noqa: S314 - pytest wrote it just now
    return {case.attrib["name"]: _outcome(case) for case in cases}


def _outcome(case: ElementTree.Element) -> Outcome:
    """Return how a test ended; it passed unless its case has a child with another outcome."""
    ends = [_OUTCOME_BY_TAG[part.tag] for part in case if part.tag in _OUTCOME_BY_TAG]
    return ends[0] if ends else Outcome.PASSED


if __name__ == "__main__":
    sys.exit(main(Suite("kafka-python", (), prepare, run)))
