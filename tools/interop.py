"""`make interop`: fetches Apache Kafka and Spark once, by name, and runs the tests that need them.

What a machine cannot do is left out, and said in one line: without Java 17, or without Maven and
its central repository when Kafka is not there yet, everything; without the connector, only Spark.
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

# By its whole name: a short one that cannot be looked up is an unknown one, says Maven.
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_VERSION = re.compile(r'version "(\d+)')
_SPARK_VERSION = re.compile("<spark.version>(.+)</spark.version>")
_NO_NETWORK = re.compile(
    r"unknown ?host|name or service|name resolution|nameresolution|unreachable|timed out|proxyerror"
    r"|connection refused|connect to|newconnectionerror|connecttimeout|offline mode",
    re.IGNORECASE,
)


class NotHereError(Exception):
    """What is needed cannot be had on this machine; the text says what."""


def main() -> int:
    """Fetch what is missing and run the tests; give pytest's status, or 0 if nothing can be run."""
    spark_tests = TESTS / "test_spark.py"
    try:
        check_java()
        fetch("Apache Kafka", FOLDER / "libs", TESTS / "pom.xml", fetch_kafka)
    except NotHereError as reason:
        print(f"interop: skipped, {reason}")
        return 0
    try:
        fetch("Spark", FOLDER / "spark", TESTS / "spark-pom.xml", fetch_spark)
    except NotHereError as reason:
        print(f"interop: Spark is skipped, {reason}", flush=True)
        return run_tests(TESTS, f"--ignore={spark_tests}")
    # The connector needs another PySpark than our pipelines, so it has a process of its own.
    return max(run_tests(TESTS, f"--ignore={spark_tests}"), run_tests(spark_tests))


def run_tests(path: Path, *options: str) -> int:
    """Run tests as the command line says; give pytest's status, 0 if it names none of them."""
    command = [sys.executable, "-m", "pytest", str(path), *options, *sys.argv[1:]]
    status = subprocess.run(command, check=False).returncode
    return 0 if status == pytest.ExitCode.NO_TESTS_COLLECTED else status


def check_java() -> None:
    """Refuse a machine whose Java is missing or too old."""
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
    """Fill a folder unless it is there and no older than its list; never leave half of one."""
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
    """Have Maven copy Kafka's jars."""
    copy_jars(pom, folder)


def fetch_spark(pom: Path, folder: Path) -> None:
    """Have Maven copy the connector's jars, and pip unpack the PySpark of the same version."""
    copy_jars(pom, folder / "jars")
    version = _SPARK_VERSION.search(pom.read_text())
    assert version is not None
    target = ["--target", str(folder / "python"), f"pyspark=={version[1]}"]
    run(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *target)


def copy_jars(pom: Path, folder: Path) -> None:
    """Copy the jars that a POM names into a folder."""
    words = ["--quiet", "--batch-mode", "--file", str(pom), f"-DoutputDirectory={folder}"]
    run(program("mvn"), *words, f"{_PLUGIN}:copy-dependencies")


def run(*words: str) -> None:
    """Run a command that downloads; its failing is the network's fault if that is what it says."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode and _NO_NETWORK.search(said):
        raise NotHereError(f"{Path(words[0]).name} cannot reach where it downloads from")
    if done.returncode:
        sys.exit(said)


if __name__ == "__main__":
    sys.exit(main())
