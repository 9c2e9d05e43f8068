"""`ottla group`, and reading as a member of one, beside members of another client."""

import subprocess
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer

from ottla.testing import Broker
from tests.clients.cli_calls import OTTLA, SECONDS_MAX, call, refused, rows, text


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with Broker(settings) as broker:
        yield broker.bootstrap_servers


def offsets(group: str, brokers: str) -> list[tuple[int, int | None, int | None]]:
    described = rows("group", "describe", group, brokers=brokers)
    return [(row["partition"], row["current_offset"], row["lag"]) for row in described]


def poll_until(consumer: Consumer, is_there: Callable[[], bool]) -> None:
    for _ in range(10 * SECONDS_MAX):
        consumer.poll(0.1)
        if is_there():
            return
    raise AssertionError(f"it has {consumer.assignment()}")


def test_a_group_goes_on_where_it_was(brokers: str) -> None:
    call("produce", "letters", brokers=brokers, stdin=b"a\nb\nc\n")
    assert text("consume", "letters", "-g", "readers", "-n", "2", brokers=brokers) == "a\nb\n"
    assert offsets("readers", brokers) == [(0, 2, 1)]
    assert text("consume", "letters", "-g", "readers", brokers=brokers) == "c\n"
    listed = rows("group", "list", brokers=brokers)
    assert [(row["group"], row["state"]) for row in listed if row["group"] == "readers"] == [
        ("readers", "Empty")
    ]


def test_offsets_are_reset_only_when_it_is_said(brokers: str) -> None:
    call("produce", "moved", "-f", "%T %v\\n", brokers=brokers, stdin=b"1000 a\n2000 b\n3000 c\n")
    call("consume", "moved", "-g", "movers", brokers=brokers)

    def reset(*arguments: str) -> int:
        moved = rows("group", "reset-offsets", "movers", "-t", "moved", *arguments, brokers=brokers)
        return int(moved[0]["new_offset"])

    assert reset("--to-earliest") == 0
    assert offsets("movers", brokers) == [(0, 3, 0)]
    assert reset("--to-datetime", "1970-01-01T00:00:02", "--execute") == 1
    assert offsets("movers", brokers) == [(0, 1, 2)]
    assert reset("--shift-by", "-5", "--execute") == 0
    assert reset("--to-offset", "2") == 2
    assert reset("--by-duration", "PT1M") == 3
    assert reset("--to-current") == 0
    assert text("consume", "moved", "-g", "movers", "-n", "1", brokers=brokers) == "a\n"


def test_a_group_with_members_shows_them_and_is_not_touched(brokers: str) -> None:
    call("topic", "create", "shared", "-p", "2", brokers=brokers)
    other = Consumer({"bootstrap.servers": brokers, "group.id": "team", "client.id": "other"})
    other.subscribe(["shared"])
    poll_until(other, lambda: len(other.assignment()) == 2)
    members = rows("group", "describe", "team", "--members", brokers=brokers)
    assert [(row["client_id"], row["partitions"]) for row in members] == [("other", 2)]
    assert text("group", "describe", "team", "--state", brokers=brokers).split()[3] == "Stable"
    reset = ("group", "reset-offsets", "team", "--topic", "shared", "--to-latest", "--execute")
    assert "stop them first" in refused(*reset, brokers=brokers)
    deleted = call("group", "delete", "team", brokers=brokers, expect=1)
    assert b"stop them first" in deleted.stderr
    other.close()
    assert rows("group", "delete", "team", "--yes", brokers=brokers)[0]["status"] == "deleted"
    assert "`ottla group list`" in refused("group", "describe", "team", brokers=brokers)


def test_partitions_are_shared_with_a_member_of_another_client(brokers: str) -> None:
    call("topic", "create", "halves", "-p", "2", brokers=brokers)
    other = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "pair",
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": 100,
        }
    )
    other.subscribe(["halves"])
    poll_until(other, lambda: len(other.assignment()) == 2)
    ours = subprocess.Popen(
        [*OTTLA, "consume", "halves", "-g", "pair", "--follow", "-b", brokers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    poll_until(other, lambda: len(other.assignment()) == 1)
    (theirs,) = other.assignment()
    form = ("-f", "%p:%v\\n")
    call("produce", "halves", *form, brokers=brokers, stdin=b"0:zero\n1:one\n")
    assert ours.stdout is not None
    assert ours.stdout.readline() == (b"one\n", b"zero\n")[theirs.partition]
    ours.terminate()
    ours.communicate(timeout=SECONDS_MAX)
    assert ours.returncode == 143
    poll_until(other, lambda: len(other.assignment()) == 2)  # ours has left, and did not just die
    other.close()


def test_internal_topics_are_listed_only_when_they_are_asked_for(brokers: str) -> None:
    call("produce", "shown", brokers=brokers, stdin=b"a\n")
    call("consume", "shown", "-g", "anybody", brokers=brokers)  # makes the topic of offsets

    def topics(*command: str) -> set[str]:
        return {row["topic"] for row in rows(*command, brokers=brokers)}

    internal = "__consumer_offsets"
    for command in (("topic", "list"), ("partition", "list"), ("cluster", "logdirs", "--replicas")):
        assert "shown" in topics(*command)
        assert internal not in topics(*command)
        assert {"shown", internal} <= topics(*command, "--internal")
    assert topics("partition", "list", internal) == {internal}
    (folder,) = rows("cluster", "logdirs", brokers=brokers)
    every = rows("cluster", "logdirs", "--replicas", "-i", brokers=brokers)
    assert folder["partitions"] == len(every)
