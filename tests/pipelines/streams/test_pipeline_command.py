"""`ottla pipeline` with real processes: run, inspected, killed, run again, failed, stopped."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.clients.cli_calls import OTTLA, refused, rows, text
from tests.pipelines.streams.topics import committed, create, latest, send

WAIT_SECONDS = 400
FILE = """
from ottla.streams import stream

letters = stream("letters", options={"maxOffsetsPerTrigger": "100"}).json(
    "n long NOT NULL", on_error="ON_ERROR"
)
letters.map(n="n").to("copies")
letters.group("n % 5 AS rest").count().to("counts")
"""


class Shell:
    """Calls `ottla pipeline` with a state directory of its own."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.servers = servers
        self.file = folder / "post.py"
        self._state = ("--state-dir", str(folder / "state"))
        self._log = folder / "run.log"
        self._started: list[subprocess.Popen[bytes]] = []

    def write(self, on_error: str) -> None:
        self.file.write_text(FILE.replace("ON_ERROR", on_error))

    def run(self) -> "subprocess.Popen[bytes]":
        command = [*OTTLA, "pipeline", "run", str(self.file), *self._state, "--quick"]
        environment = {**os.environ, "OTTLA_BROKERS": self.servers}
        with self._log.open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self._started.append(process)
        return process

    def said(self) -> str:
        return self._log.read_text()

    def rows(self, *words: str) -> list[dict[str, Any]]:
        return rows("pipeline", *words, *self._state)

    def text(self, *words: str) -> str:
        return text("pipeline", *words, *self._state)

    def refused(self, *words: str) -> str:
        return refused("pipeline", *words, *self._state, brokers=self.servers)

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


@pytest.fixture
def shell(tmp_path: Path, broker_servers: str) -> Iterator[Shell]:
    found = Shell(tmp_path, broker_servers)
    yield found
    found.close()


def wait_until(condition: Callable[[], object], shell: Shell) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, (shell.said(), shell.text("status"))
        time.sleep(0.5)


def copied(shell: Shell) -> list[int]:
    return sorted(value["n"] for _, value in committed(shell.servers, "copies"))


def counts(shell: Shell) -> dict[Any, int]:
    found = latest(committed(shell.servers, "counts"))
    return {key: value["count"] for key, value in found.items()}


def expected_counts(count: int) -> dict[str, int]:
    return {str(rest): len(range(rest, count, 5)) for rest in range(5)}


def test_a_pipeline_lives_through_kill_failure_and_repair(shell: Shell) -> None:
    create(shell.servers, "letters", "copies", "counts")
    send(shell.servers, "letters", ((str(n), {"n": n}) for n in range(300)))
    shell.write("stop")

    first = shell.run()
    wait_until(lambda: copied(shell) and counts(shell), shell)
    first.kill()
    first.wait()
    (died,) = shell.rows("list")
    assert (died["pipeline"], died["state"]) == ("post", "died")

    second = shell.run()
    wait_until(lambda: len(copied(shell)) >= 300 and counts(shell) == expected_counts(300), shell)
    assert copied(shell) == [*range(300)]
    assert "already running as process" in shell.refused("run", str(shell.file))
    send(shell.servers, "letters", [("bad", {"n": "many"})], partition=1)
    assert second.wait(WAIT_SECONDS) == 1
    last_line = shell.said().splitlines()[-1]
    assert last_line.startswith("ottla: pipeline post: flow co"), shell.said()
    assert last_line.endswith(": field n is no bigint: many"), shell.said()
    (failed,) = shell.rows("list")
    assert failed["state"] == "failed"
    assert "letters-1 offset" in failed["failure"]

    shell.write("skip")
    third = shell.run()
    send(shell.servers, "letters", ((str(n), {"n": n}) for n in range(300, 400)))
    wait_until(lambda: len(copied(shell)) >= 400 and counts(shell) == expected_counts(400), shell)
    assert copied(shell) == [*range(400)]
    wait_until(lambda: all(row["lag"] == 0 for row in shell.rows("status", "post")), shell)
    status = {row["flow"]: row for row in shell.rows("status")}
    assert status["counts"]["state_rows"] == 5
    assert status["copies"]["rows"] >= 100
    assert "copies" in shell.text("status")
    shell.text("stop", "post")
    assert third.wait(WAIT_SECONDS) == 0
    assert [row["state"] for row in shell.rows("list")] == ["stopped"]
    assert shell.refused("stop", "post") == "pipeline post is not running"


def test_sparks_ui_is_printed_and_listens_on_loopback_alone(shell: Shell) -> None:
    create(shell.servers, "postcards")
    shell.file.write_text(
        "from ottla.streams import stream\nstream('postcards').to('sent', exactly_once=False)\n"
    )
    process = shell.run()
    wait_until(lambda: "Spark's UI is" in shell.said(), shell)
    found = re.search(r"Spark's UI is http://127\.0\.0\.1:(\d+); errors .* stderr", shell.said())
    assert found is not None, shell.said()
    with urlopen(f"http://127.0.0.1:{found[1]}/jobs/") as page:
        assert b"post" in page.read()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", int(found[1])))
    process.terminate()
    assert process.wait(WAIT_SECONDS) == 0


def test_a_file_that_is_wrong_is_told_by_its_line(shell: Shell) -> None:
    assert "there is no file" in refused("pipeline", "run", "nothing.py", expect=2)
    assert "there is no pipeline x" in shell.refused("status", "x")
    shell.file.write_text("from ottla.streams import stream\n\nstream('x').jason('n long')\n")
    process = shell.run()
    assert process.wait(WAIT_SECONDS) == 1
    starting, line = shell.said().splitlines()
    assert starting == "ottla: pipeline post: starting Spark"
    assert line.startswith(f"ottla: pipeline post: {shell.file} line 3: AttributeError: ")


def test_listing_and_stopping_load_no_spark() -> None:
    program = "import sys, ottla.cli.commands.pipeline; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
