"""Kafka's tools for the terminal, called on a broker as people call them."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import IO

from tests.interop.kafka_node import TOOL_SECONDS_MAX, java_command

_TOOLS = "org.apache.kafka.tools"
_CLASS_BY_TOOL = {
    "api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
    "client-compatibility": f"{_TOOLS}.ClientCompatibilityTest",
    "client-metrics": f"{_TOOLS}.ClientMetricsCommand",
    "cluster": f"{_TOOLS}.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "console-producer": f"{_TOOLS}.ConsoleProducer",
    "consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": f"{_TOOLS}.ConsumerPerformance",
    "delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "e2e-latency": f"{_TOOLS}.EndToEndLatency",
    "features": f"{_TOOLS}.FeatureCommand",
    "get-offsets": f"{_TOOLS}.GetOffsetShell",
    "groups": f"{_TOOLS}.GroupsCommand",
    "leader-election": f"{_TOOLS}.LeaderElectionCommand",
    "log-dirs": f"{_TOOLS}.LogDirsCommand",
    "metadata-quorum": f"{_TOOLS}.MetadataQuorumCommand",
    "producer-perf-test": f"{_TOOLS}.ProducerPerformance",
    "reassign-partitions": f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    "topics": f"{_TOOLS}.TopicCommand",
    "transactional-message-copier": f"{_TOOLS}.TransactionalMessageCopier",
    "transactions": f"{_TOOLS}.TransactionsCommand",
    "verifiable-consumer": f"{_TOOLS}.VerifiableConsumer",
    "verifiable-producer": f"{_TOOLS}.VerifiableProducer",
}
_WITH_OLD_NAME = {"transactional-message-copier"}
_COMPLAINT = re.compile(r"^Error\b", re.MULTILINE)


@dataclass(frozen=True)
class Console:
    """A terminal in which the tools are called with this broker's address."""

    server: str

    def __call__(self, line: str, *, stdin: str = "") -> str:
        """Run a tool with its options, and return its output; it must succeed."""
        done = self._run(line, stdin)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not _COMPLAINT.search(done.stdout + done.stderr), done.stdout + done.stderr
        return done.stdout

    def refused(self, line: str) -> str:
        """Run a tool that must report a failure, and return its whole output.

        Some tools exit with status 0 all the same.
        """
        done = self._run(line, "")
        said = done.stdout + done.stderr
        assert done.returncode != 0 or _COMPLAINT.search(said), said
        return said

    @contextmanager
    def running(self, line: str, seconds_max: float = TOOL_SECONDS_MAX) -> Iterator[IO[str]]:
        """Run a tool that does not end by itself, yield its output, and stop it with SIGTERM.

        It is killed when it takes too long, so that a reader of the output does not hang.
        """
        with subprocess.Popen(
            self._command(line), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            watchdog = Timer(seconds_max, process.kill)
            watchdog.start()
            try:
                yield process.stdout
                process.terminate()
                process.stdout.read()
                process.wait(TOOL_SECONDS_MAX)
            finally:
                watchdog.cancel()
                process.kill()

    @contextmanager
    def in_background(self, line: str, output: Path) -> Iterator[None]:
        """Run a tool that does not end by itself, with its output in a file, and end it by SIGTERM.

        In contrast to `running`, the tool never waits for a reader of its output.
        """
        with (
            output.open("wb") as file,
            subprocess.Popen(self._command(line), stdout=file, stderr=subprocess.STDOUT) as process,
        ):
            try:
                yield
                process.terminate()
                process.wait(TOOL_SECONDS_MAX)
            finally:
                process.kill()

    def _run(self, line: str, stdin: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(line),
            check=False,
            capture_output=True,
            input=stdin,
            text=True,
            timeout=TOOL_SECONDS_MAX,
        )

    def _command(self, line: str) -> list[str]:
        tool, *arguments = shlex.split(line)
        # This tool takes its options after its subcommand.
        words = [arguments.pop(0)] if tool == "cluster" else []
        address = "--broker-list" if tool in _WITH_OLD_NAME else "--bootstrap-server"
        options = [*words, address, self.server, *arguments]
        return java_command(_CLASS_BY_TOOL[tool], *options)


def table(printed: str) -> list[list[str]]:
    """Split the rows of a printed table into words; empty lines and the heading are left out."""
    rows = [line.split() for line in printed.splitlines() if line.strip()]
    return rows[1:]


def line_with(printed: IO[str], words: str) -> str:
    """Read on to the first line that has these words."""
    for line in printed:
        if words in line:
            return line
    raise AssertionError(f"the tool has ended without saying {words}")
