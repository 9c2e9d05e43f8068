"""Directories formatted by Ottla and by Kafka: read by both tools, and started by Kafka."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.interop.kafka_node import KafkaNode, run_tool

CLUSTER = "Zv6MjWMpTyaRFQXSAyuwEA"
STORAGE = "kafka.tools.StorageTool"
PROPERTIES = """\
process.roles=broker,controller
node.id=3
controller.quorum.bootstrap.servers=127.0.0.1:9093
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
log.dirs={folder}/data
metadata.log.dir={folder}/meta
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "server.properties"
    file.write_text(PROPERTIES.format(folder=tmp_path))
    return file


def ottla(*words: str | Path) -> Any:
    """Run `ottla storage`, and return its JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "storage", *map(str, words), "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_kafkas_tool_reads_directories_that_we_formatted(config: Path) -> None:
    ottla("format", "-t", CLUSTER, "-c", config, "--standalone")
    done = run_tool(STORAGE, "info", "-c", str(config))
    assert done.returncode == 0, done.stdout
    assert f"cluster.id={CLUSTER}" in done.stdout
    assert "node.id=3, version=1" in done.stdout
    again = run_tool(STORAGE, "format", "-t", CLUSTER, "-c", str(config), "--standalone")
    assert again.returncode == 1
    assert "is already formatted" in again.stderr


def test_we_read_directories_that_kafkas_tool_formatted(config: Path) -> None:
    done = run_tool(STORAGE, "format", "-t", CLUSTER, "-c", str(config), "--standalone")
    assert done.returncode == 0, done.stderr
    seen = ottla("info", "-c", config)
    assert [(row["cluster_id"], row["node_id"], row["state"]) for row in seen] == [
        (CLUSTER, 3, "formatted")
    ] * 2


class FormattedByUs(KafkaNode):
    """A node of Kafka, from directories that `ottla storage format` prepared."""

    def format(self, *words: str) -> None:
        ottla("format", "-t", CLUSTER, "-c", self.properties, *words)


def test_a_kafka_node_starts_from_directories_that_we_formatted(tmp_path: Path) -> None:
    node = FormattedByUs(tmp_path / "kafka")
    try:
        node.start()
        assert "ERROR" not in node.output
        node.stop()
    finally:
        node.kill()
