"""Our consumers and Kafka's own in one group, on a broker of either kind, with either leader."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import pytest

from tests.clients.driver import SECONDS_MAX, Member, Received
from tests.clients.group_members import OttlaMember, Post, closing_members, poll_until
from tests.interop.console import Console
from tests.interop.kafka_node import kafka_node
from tests.interop.ottla_process import ottla_process

PIPE_BYTES = 1 << 16
JAVA_CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


@pytest.fixture(scope="module", params=["kafka", "ottla"])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka":
        with kafka_node(folder) as node:
            yield node.start().bootstrap_server
    else:
        with ottla_process(folder) as process:
            yield process.server


class JavaMember(Member):
    """Kafka's VerifiableConsumer, which prints its records and the changes of its assignment."""

    def __init__(self, printed: IO[str]) -> None:
        self._partitions: set[int] = set()
        self._descriptor = printed.fileno()
        self._rest = b""
        os.set_blocking(self._descriptor, False)

    def read(self) -> list[Received]:
        with suppress(BlockingIOError):
            self._rest += os.read(self._descriptor, PIPE_BYTES)
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            self._take(json.loads(line) if line.startswith(b"{") else {})
        return []

    def _take(self, event: dict[str, Any]) -> None:
        numbers = {row["partition"] for row in event.get("partitions", ())}
        if event.get("name") == "partitions_assigned":
            self._partitions |= numbers
        elif event.get("name") == "partitions_revoked":
            self._partitions -= numbers

    def partitions(self) -> set[int]:
        return self._partitions

    def close(self) -> list[Received]:
        os.set_blocking(self._descriptor, True)
        return []


@contextmanager
def java_member(servers: str, topic: str, strategy: str) -> Iterator[JavaMember]:
    assignor = f"org.apache.kafka.clients.consumer.{JAVA_CLASSES[strategy]}"
    line = f"verifiable-consumer --topic {topic} --group-id {topic} --reset-policy earliest"
    options = f"--assignment-strategy {assignor} --enable-autocommit"
    with Console(servers).running(f"{line} {options}") as printed:
        member = JavaMember(printed)
        yield member
        member.close()


@pytest.mark.parametrize("strategy", JAVA_CLASSES)
def test_a_consumer_of_kafkas_shares_with_ours(servers: str, strategy: str) -> None:
    topic = f"shared-{strategy}"
    post = Post(servers, topic, 4)
    post.send(40)
    settings = {"partition_assignment_strategy": strategy}

    def is_half_and_half(one: OttlaMember, other: Member) -> bool:
        return [len(one.share), len(other.partitions())] == [2, 2]

    with closing_members() as make:
        ours = make(servers, topic, topic, **settings)
        poll_until([ours], lambda: len(ours.values) == 40)
        with java_member(servers, topic, strategy) as java:
            poll_until([ours, java], lambda: is_half_and_half(ours, java))
            ours.consumer.close()
            poll_until([java], lambda: java.partitions() == {0, 1, 2, 3})
            again = make(servers, topic, topic, **settings)
            poll_until([again, java], lambda: is_half_and_half(again, java))
        post.send(40)
        poll_until([again], lambda: again.share == post.all())
        poll_until([again], lambda: set(again.values) == set(post.sent[40:]))


@pytest.mark.parametrize("strategy", JAVA_CLASSES)
def test_three_of_ours_read_every_letter_once(servers: str, strategy: str) -> None:
    topic = f"ours-{strategy}"
    post = Post(servers, topic, 6)
    with closing_members() as make:
        members: list[OttlaMember] = []
        for number in range(1, 4):
            settings = {"partition_assignment_strategy": strategy}
            members.append(make(servers, topic, topic, **settings))
            post.send(60)
            share = 6 // number
            poll_until(members, lambda: {len(one.share) for one in members} == {share})
        members[0].consumer.close()
        post.send(60)
        poll_until(members[1:], lambda: [len(one.share) for one in members[1:]] == [3, 3])
        read = [value for one in members for value in one.values]
        while len(read) < len(post.sent):
            read += [record.value for one in members[1:] for record in one.poll()]
        assert Counter(read) == Counter(post.sent)


def test_a_static_member_restarts_without_a_rebalance(servers: str) -> None:
    Post(servers, "static", 4)
    with closing_members() as make:
        first = make(servers, "static", "static", group_instance_id="first")
        second = make(servers, "static", "static", group_instance_id="second")
        poll_until([first, second], lambda: [len(first.share), len(second.share)] == [2, 2])
        heard, share = list(first.heard), second.share
        second.consumer.close()
        again = make(servers, "static", "static", group_instance_id="second")
        poll_until([first, again], lambda: again.share == share)
        assert first.heard == heard


def test_a_rebalance_that_one_member_holds_up_stops_neither_commits_nor_closing(
    servers: str,
) -> None:
    """Kafka handles one connection's requests in order: a JoinGroup must not block others."""
    topic = "held-up"
    post = Post(servers, topic, 2)
    settings = {"partition_assignment_strategy": "cooperative-sticky", "enable_auto_commit": False}
    with closing_members() as make:
        silent, busy = (make(servers, topic, topic, **settings) for _ in range(2))
        poll_until([silent, busy], lambda: [len(silent.share), len(busy.share)] == [1, 1])
        newcomer = make(servers, topic, topic, **settings)
        post.send(2)
        poll_until([busy, newcomer], lambda: len(busy.values) == 1)
        for _ in range(20):  # until its JoinGroup waits for the silent one
            busy.poll()
        began = time.monotonic()
        busy.consumer.commit()
        newcomer.consumer.close()
        assert time.monotonic() - began < SECONDS_MAX / 2
        assert [row.offset for row in busy.consumer.committed(busy.share).values()] == [1]
