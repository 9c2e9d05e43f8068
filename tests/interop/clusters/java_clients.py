"""Kafka's own producer and consumer, which print each record as a line of JSON."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop.console import Console

_RECORDS_PER_SECOND = 100
# The tool turns retries off, and with them idempotence, unless its file has them.
_PRODUCER_CONFIG = "retries=2147483647\nenable.idempotence=true\n"


class JavaClient:
    """The events that a verifiable client of Kafka has printed."""

    def __init__(self, output: Path) -> None:
        self._output = output

    def values(self, event: str) -> list[str]:
        """Return the values of the records in all events of one name."""
        return [row["value"] for row in self._events() if row["name"] == event]

    def errors(self) -> list[dict[str, Any]]:
        """Return failed sends and failed commits."""
        return [
            row
            for row in self._events()
            if row["name"] == "producer_send_error" or row.get("success") is False
        ]

    def _events(self) -> Iterator[dict[str, Any]]:
        whole_lines = self._output.read_text().split("\n")[:-1]
        return (json.loads(line) for line in whole_lines if line.startswith("{"))


@contextmanager
def java_producer(servers: str, topic: str, folder: Path) -> Iterator[JavaClient]:
    """Write records until the block ends; its values are the numbers from 0."""
    config, output = folder / "producer.properties", folder / "java-producer.txt"
    config.write_text(_PRODUCER_CONFIG)
    line = f"verifiable-producer --topic {topic} --acks -1 --throughput {_RECORDS_PER_SECOND}"
    with Console(servers).in_background(f"{line} --command-config {config}", output):
        yield JavaClient(output)


@contextmanager
def java_consumer(servers: str, topic: str, folder: Path) -> Iterator[JavaClient]:
    """Read a topic as the only member of a group, with a commit after each poll."""
    output = folder / "java-consumer.txt"
    line = f"verifiable-consumer --topic {topic} --group-id java --reset-policy earliest --verbose"
    with Console(servers).in_background(line, output):
        yield JavaClient(output)
