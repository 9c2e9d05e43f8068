"""`ottla cluster start` and `describe`, as processes: a whole cluster, seen from a shell."""

import os
import pty
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.clients.cli_calls import OTTLA, call, refused, rows, text

SECONDS_MAX = 240
START = [*OTTLA, "cluster", "start", "--base-port", "0"]
QUORUM = ("-X", "broker.session.timeout.ms=2000", "-X", "broker.heartbeat.interval.ms=500")
ZOOKEEPER = ("--zookeeper", "-X", "zookeeper.session.timeout.ms=2000")


@pytest.fixture(params=[QUORUM, ZOOKEEPER], ids=["quorum", "zookeeper"])
def options(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The options of a cluster with short sessions, with its metadata in either place."""
    chosen: tuple[str, ...] = request.param
    if chosen is ZOOKEEPER:
        request.getfixturevalue("needs_zookeeper")
    return chosen


def wait_for(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, "it does not come to be so"
        time.sleep(0.05)


@contextmanager
def started(
    folder: Path, *options: str, stderr: int | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a cluster, and wait until it is ready; kill it if it is not stopped in the block."""
    ready = folder / "ready"
    process = subprocess.Popen(
        [*START, "--data-dir", str(folder / "data"), "--ready-file", str(ready), *options],
        stdin=subprocess.DEVNULL,
        stderr=stderr,
    )
    try:
        wait_for(lambda: ready.exists() or process.poll() is not None)
        assert process.poll() is None, "it did not start; what it said is shown by pytest"
        yield process
    finally:
        process.kill()
        process.wait()


def said(log: Path, pattern: str) -> "re.Match[str] | None":
    return re.search(pattern, log.read_text())


def test_a_broker_that_is_killed_is_shown_and_the_others_lead(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with (
        log.open("wb") as output,
        started(tmp_path, *options, stderr=output.fileno()) as process,
    ):
        servers = (tmp_path / "ready").read_text().strip()
        assert len(servers.split(",")) == 3
        text("topic", "create", "letters", "-p", "3", brokers=servers)
        before = rows("cluster", "describe", brokers=servers)
        assert (before["health"], before["under_replicated"], before["partitions"]) == ("ok", 0, 3)
        assert [row["leaders"] for row in before["brokers"]] == [1, 1, 1]
        wait_for(lambda: said(log, r"broker 3 at \S+ runs as process (\d+)"))
        registries = said(log, r"schema registries at (\S+), (\S+), (\S+)")
        assert registries
        for url in registries.groups():
            with urlopen(f"{url}/subjects") as response:
                assert response.read() == b"[]"
        found = said(log, r"broker 3 at \S+ runs as process (\d+)")
        assert found
        os.kill(int(found[1]), signal.SIGKILL)
        wait_for(lambda: said(log, "broker 3 at .* has ended with -9"))
        wait_for(lambda: said(log, "partitions 3, under-replicated 3, offline 0"))
        after = rows("cluster", "describe", brokers=servers.rpartition(",")[0])
        dead = after["brokers"][2]
        assert (dead["id"], dead["host"], dead["leaders"]) == (3, None, 0)
        assert (dead["replicas"], dead["under_replicated"]) == (3, 3)
        assert sum(row["leaders"] for row in after["brokers"]) == 3
        assert after["health"] == "under-replicated"
        assert after["controller"] in {1, 2}
        again = ("cluster", "start-broker", "--data-dir", tmp_path / "data")
        assert said(log, f"`ottla cluster start-broker 3 --data-dir {tmp_path / 'data'}` starts")
        assert call(*again, "3").stderr == b"ottla: broker 3 runs again\n"
        wait_for(lambda: rows("cluster", "describe", brokers=servers)["health"] == "ok")
        assert len(rows("cluster", "describe", brokers=servers)["brokers"]) == 3
        assert refused(*again, "3") == "broker 3 is running already"
        assert "has no broker 9" in refused(*again, "9")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == 0
    assert not (tmp_path / "ready").exists()
    assert log.read_text().splitlines()[-1] == "ottla: stopped"
    assert f"no cluster runs in {tmp_path / 'data'}" in refused(*again, "3")
    assert not list((tmp_path / "data").glob("start-broker-*"))


def test_on_a_terminal_a_table_is_shown_and_what_was_kept_goes_on(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    with started(tmp_path, "--brokers", "1", *options) as process:
        servers = (tmp_path / "ready").read_text().strip()
        text("topic", "create", "letters", brokers=servers)
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    shown = b""

    def is_shown() -> bool:
        nonlocal shown
        try:
            shown += os.read(ours, 1 << 16)
        except BlockingIOError:
            return False
        return b"UNDER-REPLICATED" in shown and b"partitions 1, under-replicated 0" in shown

    with started(tmp_path, "--brokers", "1", *options, stderr=theirs) as process:
        wait_for(is_shown)
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0
    os.close(theirs)
    os.close(ours)


def test_wrong_calls_are_one_sentence(tmp_path: Path) -> None:
    sentence = refused("cluster", "start", "--ephemeral", "--data-dir", tmp_path, expect=2)
    assert sentence == "--ephemeral has a directory of its own: leave out --data-dir"
    sentence = refused("cluster", "start", "-X", "num.partitions", expect=2)
    assert sentence == "-X takes KEY=VALUE, not 'num.partitions'"
    sentence = refused("cluster", "start", "--zookeeper-servers", "3", expect=2)
    assert sentence == "--zookeeper-servers is only for --zookeeper"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        sentence = refused("cluster", "start", "--ephemeral", "--base-port", port)
    assert sentence == f"port {port} cannot be had: Address already in use"
