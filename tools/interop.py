"""`make interop`: fetches Apache Kafka, Spark and YARN once, by name, and runs their tests.

Tests with missing requirements are left out, with one line of output: without Java 17, or without
Maven and its central repository for a missing Kafka, all tests; without the connector or YARN, only
their tests.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
TESTS: Final = ROOT / "tests" / "interop"
FOLDER: Final = ROOT / ".interop"
JAVA_MIN: Final = 17

# The full name: for a short plugin name that cannot be resolved, Maven reports an unknown plugin.
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_VERSION = re.compile(r'version "(\d+)')
_SPARK_VERSION = re.compile("<spark.version>(.+)</spark.version>")
_NO_NETWORK = re.compile(
    r"unknown ?host|name or service|name resolution|nameresolution|unreachable|timed out|proxyerror"
    r"|connection refused|connect to|newconnectionerror|connecttimeout|offline mode",
    re.IGNORECASE,
)


class NotHereError(Exception):
    """A requirement that this machine cannot provide; the text names it."""


def main() -> int:
    """Fetch missing files and run the tests; return pytest's status, or 0 if no test can run."""
    try:
        check_java()
        fetch("Apache Kafka", FOLDER / "libs", TESTS / "pom.xml", fetch_kafka)
    except NotHereError as reason:
        print(f"interop: skipped, {reason}")
        return 0
    spark_tests, yarn_tests = TESTS / "test_spark.py", TESTS / "test_yarn.py"
    has_spark = can_fetch("Spark", FOLDER / "spark", TESTS / "spark-pom.xml", fetch_spark)
    has_yarn = can_fetch("YARN", FOLDER / "yarn", TESTS / "yarn-pom.xml", copy_jars)
    registry_tests = TESTS / "test_registry_with_java.py"
    has_registry = can_fetch(
        "the registry's client", FOLDER / "registry", TESTS / "registry-pom.xml", copy_jars
    )
    left_out = [spark_tests]
    left_out += [] if has_yarn else [yarn_tests]
    left_out += [] if has_registry else [registry_tests]
    status = run_tests(TESTS, *(f"--ignore={tests}" for tests in left_out))
    # The connector needs another PySpark than our pipelines, so it has a process of its own.
    return max(status, run_tests(spark_tests)) if has_spark else status


def can_fetch(name: str, folder: Path, pom: Path, fill: Callable[[Path, Path], None]) -> bool:
    """Fetch files, or print why their tests are skipped."""
    try:
        fetch(name, folder, pom, fill)
    except NotHereError as reason:
        print(f"interop: {name} is skipped, {reason}", flush=True)
        return False
    return True


def run_tests(path: Path, *options: str) -> int:
    """Run the tests of the command line; return pytest's status, 0 if it names none of them."""
    command = [sys.executable, "-m", "pytest", str(path), *options, *sys.argv[1:]]
    status = subprocess.run(command, check=False).returncode
    return 0 if status == pytest.ExitCode.NO_TESTS_COLLECTED else status


def check_java() -> None:
    """Refuse a machine with a missing or too old Java."""
    java = program("java")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = _VERSION.search(said)
    if found is None or int(found[1]) < JAVA_MIN:
        raise NotHereError(f"the java here is older than {JAVA_MIN}")


def program(name: str) -> str:
    """Find a program."""
    path = shutil.which(name)
    if path is None:
        raise NotHereError(f"there is no {name} here")
    return path


def fetch(name: str, folder: Path, pom: Path, fill: Callable[[Path, Path], None]) -> None:
    """Fill a directory unless it exists and is newer than its list; never leave it incomplete."""
    ready = folder / ".ready"
    if ready.exists() and ready.stat().st_mtime >= pom.stat().st_mtime:
        return
    print(f"Fetching {name} into {FOLDER.name} (once)…", flush=True)
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    fill(pom, unfinished)
    (unfinished / ".ready").touch()
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)


def fetch_kafka(pom: Path, folder: Path) -> None:
    """Copy Kafka's jars with Maven."""
    copy_jars(pom, folder)


def fetch_spark(pom: Path, folder: Path) -> None:
    """Copy the connector's jars with Maven, and unpack the same version of PySpark with pip."""
    copy_jars(pom, folder / "jars")
    version = _SPARK_VERSION.search(pom.read_text())
    assert version is not None
    target = ["--target", str(folder / "python"), f"pyspark=={version[1]}"]
    run(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *target)


def copy_jars(pom: Path, folder: Path) -> None:
    """Copy the jars of a POM into a directory."""
    words = ["--quiet", "--batch-mode", "--file", str(pom), f"-DoutputDirectory={folder}"]
    run(program("mvn"), *words, f"{_PLUGIN}:copy-dependencies")


def run(*words: str) -> None:
    """Run a downloading command; if its output names a network failure, raise NotHereError."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode and _NO_NETWORK.search(said):
        raise NotHereError(f"{Path(words[0]).name} cannot reach where it downloads from")
    if done.returncode:
        sys.exit(said)


if __name__ == "__main__":
    sys.exit(main())
