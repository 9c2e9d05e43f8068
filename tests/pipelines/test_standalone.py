"""Drivers on a standalone cluster of Spark: a master and two workers, as real processes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyspark
import pytest

from ottla import Admin, Producer
from tests.pipelines.clusters.copying import SOURCE, TARGET
from tests.pipelines.clusters.standalone import Standalone
from tests.pipelines.clusters.windows import JVM_OPTIONS
from tests.pipelines.sink.processes import command_of, descendants, kill_tree
from tests.pipelines.sink.reading import all_committed, wait_for

DRIVER_SECONDS_MAX = 500
VALUES = sorted(f"letter {number}" for number in range(60))
ROOT = Path(__file__).parents[2]
ONE_EXECUTOR = "spark.cores.max=1"
"""An executor is a JVM: the first test alone needs one on each worker."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("spark") / "standalone") as standalone:
        yield standalone
        started = [each for it in standalone.process_ids for each in (it, *descendants(it))]
    wait_for(lambda: not any(map(command_of, started)), "all processes of the cluster end")


@pytest.fixture
def servers(broker_servers: str) -> Iterator[str]:
    """A broker with the topic to read full, and the topic to write empty."""
    with Admin(bootstrap_servers=broker_servers) as admin:
        for topic in (SOURCE, TARGET):
            admin.topics.create(topic, partitions=2)
        with Producer(bootstrap_servers=broker_servers, acks="all") as producer:
            for number, value in enumerate(VALUES):
                producer.send(SOURCE, value, partition=number % 2)
        yield broker_servers
        admin.topics.delete([SOURCE, TARGET])


def drive(
    command: Sequence[str], folder: Path, settings: dict[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run a driver to its end, which may be a failure; end all of it if it takes too long."""
    environment = os.environ | {"TMPDIR": str(folder), "PYTHONPATH": str(ROOT)} | settings
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as driver:
        try:
            out, error = driver.communicate(timeout=DRIVER_SECONDS_MAX)
        finally:
            kill_tree(driver.pid)
    return subprocess.CompletedProcess(command, driver.returncode, out, error)


def program(master: str, servers: str, folder: Path, *settings: str) -> list[str]:
    return [
        *(sys.executable, "-m", "tests.pipelines.clusters.copying"),
        *(master, servers, str(folder), *settings),
    ]


def check_copied(
    done: "subprocess.CompletedProcess[str]", cluster: Standalone, servers: str
) -> None:
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout) == {"master": cluster.master, "values": VALUES}
    assert sorted(all_committed(servers, TARGET)) == VALUES


def test_a_batch_and_an_exactly_once_stream_run_on_a_standalone_cluster(
    cluster: Standalone, servers: str, tmp_path: Path
) -> None:
    done = drive(program(cluster.master, servers, tmp_path), tmp_path, {})
    check_copied(done, cluster, servers)


def test_a_driver_under_spark_submit_runs_on_the_master_that_it_names(
    cluster: Standalone, servers: str, tmp_path: Path
) -> None:
    home = Path(pyspark.__file__).parent
    submit = [str(home / "bin" / "spark-submit"), "--master", cluster.master]
    submit += ["--driver-java-options", JVM_OPTIONS]
    script = str(ROOT / "tests" / "pipelines" / "clusters" / "copying.py")
    command = [*submit, "--conf", "spark.driver.host=127.0.0.1", "--conf", ONE_EXECUTOR, script]
    settings = {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(home)}
    done = drive([*command, "-", servers, str(tmp_path)], tmp_path, settings)
    check_copied(done, cluster, servers)


def test_executors_without_ottla_are_one_sentence(
    cluster: Standalone, servers: str, tmp_path: Path
) -> None:
    bare = tmp_path / "bare_python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')  # without site-packages
    bare.chmod(0o755)
    command = program(cluster.master, servers, tmp_path, ONE_EXECUTOR)
    done = drive(command, tmp_path, {"PYSPARK_PYTHON": str(bare)})
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"the executors of {cluster.master} cannot import ottla with "), last
    assert "No module named 'pyarrow'; docs/spark-cluster.md" in last


def test_executors_without_python_are_one_sentence(
    cluster: Standalone, servers: str, tmp_path: Path
) -> None:
    absent = str(tmp_path / "absent")
    command = program(cluster.master, servers, tmp_path, ONE_EXECUTOR)
    done = drive(command, tmp_path, {"PYSPARK_PYTHON": absent})
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"the executors of {cluster.master} cannot run Python: "), last
    assert absent in last
