"""Destructive commands name the cluster and the data they will destroy, and ask for consent."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from ottla.testing import Broker
from tests.clients.cli_calls import OTTLA, SECONDS_MAX, call, refused, rows, text

CTRL_C = b"\x03"


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with Broker(settings) as broker:
        call("topic", "create", "letters", "-p", "2", brokers=broker.bootstrap_servers)
        call("produce", "letters", "-p", "1", brokers=broker.bootstrap_servers, stdin=b"a\nb\nc\n")
        call("consume", "letters", "-g", "readers", brokers=broker.bootstrap_servers)
        yield broker.bootstrap_servers


def cluster_name(brokers: str) -> str:
    return f"cluster {rows('cluster', 'describe', brokers=brokers)['cluster_id']} at {brokers}"


def on_a_terminal(*arguments: str, brokers: str, typed: bytes) -> tuple[int, str]:
    """Run a command on a terminal, and type this as soon as it asks."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", *OTTLA, *arguments, "-b", brokers],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        shown = "".join(_answering(ours, typed))
        return process.wait(SECONDS_MAX), shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _answering(terminal: int, typed: bytes) -> Iterator[str]:
    """Yield the terminal's output until the process has closed its terminal."""
    deadline = time.monotonic() + SECONDS_MAX
    with suppress(OSError):  # how Linux reports that no process has the terminal open any more
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 0.05)[0]:
                continue
            shown = os.read(terminal, 1 << 16)
            yield shown.decode()
            if shown.endswith(b"Go on? [y/N] "):
                os.write(terminal, typed)


COMMANDS = [
    (["topic", "delete", "letters"], "delete topic letters: 2 partitions, 3 records at most"),
    (
        ["topic", "trim", "letters", "--before", "end"],
        "delete 3 records of letters-1, offsets 0 to 2",
    ),
    (["group", "delete", "readers"], "delete group readers, with 2 committed offsets"),
    (["broker", "drain", "1"], ""),
]


@pytest.mark.parametrize(("command", "effect"), COMMANDS[:3])
def test_without_a_terminal_the_command_is_refused(
    brokers: str, command: list[str], effect: str
) -> None:
    sentence = refused(*command, brokers=brokers, expect=2)
    assert sentence == (f"{cluster_name(brokers)}: give --yes to {effect}; --dry-run only shows it")
    assert text("consume", "letters", brokers=brokers) == "a\nb\nc\n"
    assert rows("group", "describe", "readers", brokers=brokers)


@pytest.mark.parametrize(("command", "effect"), COMMANDS[:3])
def test_a_dry_run_shows_what_would_go_and_keeps_it(
    brokers: str, command: list[str], effect: str
) -> None:
    done = call(*command, "--dry-run", brokers=brokers)
    expected = [f"ottla: {cluster_name(brokers)}: would", f"  {effect}"]
    assert done.stderr.decode().splitlines() == expected
    assert done.stdout
    assert text("consume", "letters", brokers=brokers) == "a\nb\nc\n"
    assert rows("group", "describe", "readers", brokers=brokers)


@pytest.mark.parametrize("command", [command for command, _ in COMMANDS])
def test_yes_and_a_dry_run_exclude_each_other(brokers: str, command: list[str]) -> None:
    assert "give only one" in refused(*command, "--yes", "--dry-run", brokers=brokers, expect=2)


def test_a_dry_run_names_what_is_not_there(brokers: str) -> None:
    done = call("topic", "delete", "letters", "none", "--dry-run", brokers=brokers, expect=1)
    assert b"would be deleted" in done.stdout
    assert b"UNKNOWN_TOPIC_OR_PARTITION" in done.stdout
    done = call("group", "delete", "nobody", "--dry-run", brokers=brokers, expect=1)
    assert b"GROUP_ID_NOT_FOUND" in done.stdout


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b"yeah\n", b"\x04"])
def test_any_answer_but_yes_changes_nothing(brokers: str, answer: bytes) -> None:
    code, shown = on_a_terminal("topic", "delete", "letters", brokers=brokers, typed=answer)
    assert (code, "nothing was changed" in shown) == (1, True), shown
    assert f"{cluster_name(brokers)}: will" in shown
    assert COMMANDS[0][1] in shown
    assert text("consume", "letters", brokers=brokers) == "a\nb\nc\n"


def test_ctrl_c_at_the_question_ends_the_command(brokers: str) -> None:
    code, shown = on_a_terminal("topic", "delete", "letters", brokers=brokers, typed=CTRL_C)
    assert code == 130, shown
    assert "Traceback" not in shown
    assert text("consume", "letters", brokers=brokers) == "a\nb\nc\n"


@pytest.mark.parametrize("answer", [b"y\n", b"YES\n"])
def test_yes_at_the_question_does_it(brokers: str, answer: bytes) -> None:
    call("topic", "create", "doomed", brokers=brokers)
    code, shown = on_a_terminal("topic", "delete", "doomed", brokers=brokers, typed=answer)
    assert code == 0, shown
    assert "doomed" not in text("topic", "list", brokers=brokers)


def test_an_offset_reset_names_the_cluster(brokers: str) -> None:
    reset = ("group", "reset-offsets", "readers", "--topic", "letters", "--to-earliest")
    shown = call(*reset, brokers=brokers).stderr.decode()
    assert shown == f"ottla: {cluster_name(brokers)}: nothing was changed; --execute does it\n"
    shown = call(*reset, "--yes", brokers=brokers).stderr.decode()
    assert shown == f"ottla: {cluster_name(brokers)}: 2 offsets committed for group readers\n"


def test_an_unclean_election_without_a_loss_needs_no_consent(brokers: str) -> None:
    shown = rows("partition", "elect", "letters:0", "--unclean", brokers=brokers)
    assert [row["result"] for row in shown] == ["ELECTION_NOT_NEEDED"]
