"""Clients of the schema registry: the tests of Confluent's client for JavaScript, and two others.

`@confluentinc/schemaregistry` carries its tests. The tests of its serializers use a mock, and name
the address of a real registry in a comment; here they get that address. A hook empties the registry
before each of them. `@kafkajs/confluent-schema-registry` and franz-go's `pkg/sr` have no tests that
can be pointed at a registry: `registry_stories` gives them orders.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Final

from ottla.testing import Cluster
from tools.peers.registry_stories import FRANZ, KAFKAJS, RefusedError, running
from tools.peers.suite import FOLDER, HERE, SETTINGS, Brokers, Outcome, Suite, call, free_port, main

CONFLUENT: Final = ("@confluentinc/schemaregistry", "1.10.1")
KAFKAJS_CLIENT: Final = ("@kafkajs/confluent-schema-registry", "3.9.0")
JEST: Final = ("jest", "29.7.0")
FRANZ_MODULE: Final = ("github.com/twmb/franz-go/pkg/sr", "v1.8.0")
HOME: Final = FOLDER / f"schema-registry-{CONFLUENT[1]}"
DIST: Final = HOME / "node_modules" / CONFLUENT[0] / "dist"
FRANZ_HOME: Final = FOLDER / f"franz-go-sr-{FRANZ_MODULE[1]}"
LISTENER: Final = "ottla.schema.registry.listener"
SPECS: Final = {
    "avro": "test/serde/avro.spec.js",
    "json": "test/serde/json.spec.js",
    "protobuf": "test/serde/protobuf.spec.js",
    "client": "e2e/schemaregistry-client.spec.js",
}
JEST_SECONDS_MAX: Final = 300
STORIES: Final = {**KAFKAJS, **FRANZ}

# Jest's own rules leave out packages, and its map of files leaves out the folder .peers.
_CONFIG: Final = """\
module.exports = {
  testEnvironment: "node",
  testMatch: ["**/*.spec.js"],
  testPathIgnorePatterns: [],
  transform: {},
  haste: { retainAllFiles: true },
  moduleNameMapper: {
    "^@confluentinc/schemaregistry/(.*)$":
      "<rootDir>/node_modules/@confluentinc/schemaregistry/dist/$1",
  },
  setupFilesAfterEnv: [process.env.REGISTRY_RESET],
};
"""
_ADDRESS: Final = re.compile(r"'mock://'|'http://localhost:8081'")
_OUTCOME_BY_STATUS: Final = {"passed": Outcome.PASSED, "failed": Outcome.FAILED}


def prepare() -> None:
    """Download and compile missing parts."""
    if not (HOME / "jest.config.js").exists():
        HOME.mkdir(exist_ok=True)
        (HOME / "package.json").write_text("{}")
        packages = [f"{name}@{version}" for name, version in (CONFLUENT, KAFKAJS_CLIENT, JEST)]
        call("npm", "install", "--ignore-scripts", *packages, folder=HOME)
        for spec in (*SPECS.values(), "test/test-constants.js"):
            text = (DIST / spec).read_text()
            (DIST / spec).write_text(_ADDRESS.sub("process.env.REGISTRY_URL", text))
        (HOME / "jest.config.js").write_text(_CONFIG)
    FRANZ_HOME.mkdir(exist_ok=True)
    (FRANZ_HOME / "main.go").write_text((HERE / "registry_franz.go").read_text())
    if not (FRANZ_HOME / "go.mod").exists():
        (FRANZ_HOME / "go.mod").write_text("module peers\n")
        call("go", "get", "@".join(FRANZ_MODULE), folder=FRANZ_HOME)
    call("go", "build", "-o", "franz", ".", folder=FRANZ_HOME)


def run(brokers: Brokers, tests: Sequence[str]) -> Mapping[str, Outcome]:
    """Run each spec with a registry of its own, and the stories with another."""
    outcomes: dict[str, Outcome] = {}
    for name in SPECS:
        if any(test.startswith(f"{name}:") for test in tests):
            with _registry(brokers) as url:
                outcomes |= _run_spec(name, url)
    kafkajs = HOME / "registry_kafkajs.js"
    kafkajs.write_text((HERE / kafkajs.name).read_text())  # beside the packages it needs
    commands = {"kafkajs": ["node", str(kafkajs)], "franz": [str(FRANZ_HOME / "franz")]}
    with _registry(brokers) as url:
        for test in [test for test in tests if test in STORIES]:
            outcomes[test] = _tell(test, commands[test.partition(":")[0]], url)
    return outcomes


@contextmanager
def _registry(brokers: Brokers) -> Iterator[str]:
    """Run an empty registry: of one broker, or the first of three; yield its URL.

    After `--against`, the registry is named behind the broker: `HOST:PORT+http://HOST:PORT`.
    """
    if brokers.count > 1:
        with (
            TemporaryDirectory(prefix="data-", dir=FOLDER, ignore_cleanup_errors=True) as folder,
            Cluster(
                brokers.count, SETTINGS, data_dir=folder, registries=True, zookeeper=True
            ) as cluster,
        ):
            yield cluster.registry_urls[0]
        return
    port = free_port()
    with brokers.start({LISTENER: f"127.0.0.1:{port}"}) as address:
        yield address.partition("+")[2] or f"http://127.0.0.1:{port}"


def _run_spec(name: str, url: str) -> dict[str, Outcome]:
    """Run a file of tests by Jest; its second test of a name gets the number 2."""
    report = HOME / f"{name}.json"
    report.unlink(missing_ok=True)
    words = ["node_modules/.bin/jest", "--runInBand", "--silent", "--verbose", "--json"]
    words += ["--outputFile", str(report), "--runTestsByPath", str(DIST / SPECS[name])]
    env = os.environ | {"REGISTRY_URL": url, "REGISTRY_RESET": str(HERE / "registry_reset.js")}
    with (HOME / f"{name}.log").open("wb") as output:
        subprocess.run(
            words,
            cwd=HOME,
            env=env,
            stdout=output,
            stderr=output,
            check=False,
            timeout=JEST_SECONDS_MAX,
        )
    (file,) = json.loads(report.read_text())["testResults"]
    outcomes: dict[str, Outcome] = {}
    for case in file["assertionResults"]:
        test = f"{name}:{re.sub('[^a-z0-9]+', '-', case['title'].lower())}"
        test = f"{test}-2" if test in outcomes else test
        outcomes[test] = _OUTCOME_BY_STATUS.get(case["status"], Outcome.SKIPPED)
    return outcomes


def _tell(test: str, command: Sequence[str], url: str) -> Outcome:
    log = HOME / f"{test.replace(':', '-')}.log"
    try:
        with running(command, HOME, os.environ | {"REGISTRY_URL": url}) as program:
            STORIES[test](program, url)
    except (AssertionError, RefusedError, ValueError, OSError) as failed:
        log.write_text(f"{type(failed).__name__}: {failed}\n")
        return Outcome.FAILED
    return Outcome.PASSED


if __name__ == "__main__":
    sys.exit(main(Suite("schema-registry", ("npm", "node", "go"), prepare, run)))
