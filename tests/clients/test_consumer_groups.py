"""Groups of Ottla consumers: assignment, commits, and members that leave or die."""

import asyncio
import logging
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping

import pytest
from confluent_kafka.admin import AdminClient

from ottla.clients.assignors.assignor import Assignment, MemberSubscription, RacksByTopic
from ottla.clients.assignors.range_assignor import RangeAssignor
from ottla.clients.assignors.sticky_assignor import CooperativeStickyAssignor
from ottla.clients.consumer.async_consumer import ENFORCED, AsyncConsumer
from ottla.clients.consumer.consumer import Consumer
from ottla.clients.consumer.group.group_errors import (
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
)
from ottla.clients.consumer.group.group_requests import GroupRequests
from ottla.clients.consumer.state.errors import ConsumerError
from ottla.clients.consumer.state.offsets import OffsetAndMetadata
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.transactions.transaction_errors import TransactionAbortableError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.join_group import JoinGroupResponse
from tests.clients.conftest import SETTINGS
from tests.clients.cutting_proxy import CuttingProxy, _read_frame, broker_behind
from tests.clients.driver import HEARTBEAT_MS, SECONDS_MAX, SESSION_MS
from tests.clients.group_members import STRATEGIES, OttlaMember, Post, closing_members, poll_until

Make = Callable[..., OttlaMember]


@pytest.fixture
def make() -> Iterator[Make]:
    with closing_members() as make:
        yield make


def shares(members: list[OttlaMember]) -> list[int]:
    return sorted(len(one.share) for one in members)


def read_by(members: list[OttlaMember]) -> Counter[bytes | None]:
    return Counter(value for one in members for value in one.values)


def together(members: list[OttlaMember], partitions: int) -> bool:
    """Whether every partition is assigned, and the shares differ by one at most."""
    sizes = shares(members)
    return sum(sizes) == partitions and sizes[-1] - sizes[0] <= 1


def member_count(servers: str, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": servers})
    described = admin.describe_consumer_groups([group])[group].result(SECONDS_MAX)
    return len(described.members)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_come_and_go_and_every_letter_is_read_once(
    story_servers: str, topic: str, make: Make, strategy: str
) -> None:
    post = Post(story_servers, topic, 6)
    members = []
    for _ in range(3):
        members.append(make(story_servers, topic, topic, partition_assignment_strategy=strategy))
        post.send(60)
        present = list(members)
        poll_until(members, lambda: together(present, 6))
    poll_until(members, lambda: len(read_by(members)) == len(post.sent))
    members[0].consumer.close()
    post.send(60)
    poll_until(members[1:], lambda: together(members[1:], 6))
    poll_until(members[1:], lambda: len(read_by(members)) == len(post.sent))
    assert read_by(members) == Counter(post.sent)


def test_in_a_cooperative_group_only_what_goes_is_revoked(
    story_servers: str, topic: str, make: Make
) -> None:
    post = Post(story_servers, topic, 4)
    first = make(story_servers, topic, topic, partition_assignment_strategy="cooperative-sticky")
    poll_until([first], lambda: len(first.share) == 4)
    second = make(story_servers, topic, topic, partition_assignment_strategy="cooperative-sticky")
    poll_until([first, second], lambda: together([first, second], 4))
    gone = [names for what, names in first.heard if what == "revoked"]
    assert gone == [second.share]
    assert sorted(first.share + second.share) == post.all()


def test_an_eager_group_gives_everything_back_before_it_shares_out(
    story_servers: str, topic: str, make: Make
) -> None:
    post = Post(story_servers, topic, 4)
    first = make(story_servers, topic, topic)
    poll_until([first], lambda: len(first.share) == 4)
    second = make(story_servers, topic, topic)
    poll_until([first, second], lambda: together([first, second], 4))
    assert first.heard[:2] == [("assigned", post.all()), ("revoked", post.all())]
    assert first.heard[-1] == ("assigned", first.share)


def test_a_group_is_moved_from_eager_to_cooperative_one_member_after_the_other(
    story_servers: str, topic: str, make: Make
) -> None:
    Post(story_servers, topic, 4)
    both = ["cooperative-sticky", "range"]
    old = [make(story_servers, topic, topic, partition_assignment_strategy="range")]
    new = make(story_servers, topic, topic, partition_assignment_strategy=both)
    poll_until([*old, new], lambda: together([*old, new], 4))
    old[0].consumer.close()
    last = make(story_servers, topic, topic, partition_assignment_strategy="cooperative-sticky")
    poll_until([new, last], lambda: together([new, last], 4))


def test_a_static_member_restarts_without_a_rebalance(
    story_servers: str, topic: str, make: Make
) -> None:
    Post(story_servers, topic, 4)
    first = make(story_servers, topic, topic, group_instance_id="first")
    second = make(story_servers, topic, topic, group_instance_id="second")
    poll_until([first, second], lambda: together([first, second], 4))
    generation_id = first.consumer.group_metadata().generation_id
    heard, share = list(first.heard), second.share
    second.consumer.close()
    again = make(story_servers, topic, topic, group_instance_id="second")
    poll_until([first, again], lambda: again.share == share)
    assert first.heard == heard
    assert first.consumer.group_metadata().generation_id == generation_id


def test_a_consumer_with_a_used_instance_id_gets_an_error(
    story_servers: str, topic: str, make: Make
) -> None:
    Post(story_servers, topic, 1)
    first = make(story_servers, topic, topic, group_instance_id="window")
    poll_until([first], lambda: len(first.share) == 1)
    second = make(story_servers, topic, topic, group_instance_id="window")
    poll_until([second], lambda: len(second.share) == 1)
    with pytest.raises(FencedInstanceIdError, match="'window', which must be unique"):
        poll_until([first], lambda: False)
    with pytest.raises(FencedInstanceIdError):
        first.consumer.commit({TopicPartition(topic, 0): 0})
    first.consumer.close()
    assert first.heard[-1] == ("lost", [TopicPartition(topic, 0)])


DOOMED = """
import sys
from ottla.clients.consumer.consumer import Consumer
servers, group, topic = sys.argv[1:]
consumer = Consumer(bootstrap_servers=servers, group_id=group, session_timeout_ms=1500,
                    heartbeat_interval_ms=200, auto_offset_reset="earliest")
consumer.subscribe([topic], on_assigned=lambda names: print(len(names), flush=True))
while True:
    consumer.poll(timeout=0.1)
"""


def test_the_partitions_of_a_member_that_is_killed_go_to_the_others(
    story_servers: str, topic: str, make: Make
) -> None:
    post = Post(story_servers, topic, 2)
    command = [sys.executable, "-c", DOOMED, story_servers, topic, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as doomed:
        try:
            assert doomed.stdout is not None
            assert doomed.stdout.readline() == b"2\n"
            other = make(story_servers, topic, topic)
            poll_until([other], lambda: len(other.share) == 1)
        finally:
            doomed.send_signal(signal.SIGKILL)
    post.send(10)
    poll_until([other], lambda: other.share == post.all())
    poll_until([other], lambda: sorted(other.values) == sorted(post.sent))


def test_a_handler_that_takes_too_long_loses_its_partitions(
    story_servers: str, topic: str, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    post = Post(story_servers, topic, 2)
    post.send(4)
    slow = make(story_servers, topic, topic, max_poll_interval_ms=500)
    poll_until([slow], lambda: len(slow.values) == 4)
    other = make(story_servers, topic, topic)
    with caplog.at_level(logging.WARNING):
        poll_until([other], lambda: other.share == post.all())  # while slow does not poll
    assert "has not polled for 500 ms" in caplog.text
    with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms"):
        slow.consumer.commit()
    slow.heard.clear()
    poll_until([slow, other], lambda: together([slow, other], 2))
    assert slow.heard[0] == ("lost", post.all())


def test_a_consumer_without_its_partitions_commits_nothing_in_a_transaction(
    story_servers: str, topic: str, make: Make
) -> None:
    post = Post(story_servers, topic, 1)
    post.send(4)
    slow = make(story_servers, topic, topic, max_poll_interval_ms=500)
    poll_until([slow], lambda: len(slow.values) == 4)
    other = make(story_servers, topic, topic)
    poll_until([other], lambda: other.share == post.all())  # while slow does not poll
    ends = {name: slow.consumer.position(name) for name in post.all()}
    with Producer(bootstrap_servers=story_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(TransactionAbortableError, match=r"abort_transaction.* joins again"):
            producer.send_offsets_to_transaction(ends, slow.consumer.group_metadata())
        producer.abort_transaction()


def test_a_poll_that_waits_for_long_is_no_silence(
    story_servers: str, topic: str, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    Post(story_servers, topic, 1)
    patient = make(story_servers, topic, topic, max_poll_interval_ms=300)
    with caplog.at_level(logging.WARNING):
        while not patient.heard:
            assert patient.consumer.poll(timeout=1.5) == []
    assert [what for what, _ in patient.heard] == ["assigned"]
    assert "has not polled" not in caplog.text


def test_a_listener_commits_before_partitions_go(
    story_servers: str, topic: str, make: Make
) -> None:
    post = Post(story_servers, topic, 4)
    post.send(40)
    first = make(story_servers, topic, enable_auto_commit=False)

    def commit(names: list[TopicPartition]) -> None:
        first.consumer.commit({name: first.consumer.position(name) for name in names})

    first.subscribe([topic], on_revoked=commit)
    poll_until([first], lambda: len(first.values) == 40)
    second = make(story_servers, topic, topic)
    poll_until([first, second], lambda: together([first, second], 4))
    post.send(40)
    poll_until([first, second], lambda: len(read_by([first, second])) == 80)
    assert read_by([first, second]) == Counter(post.sent)


def test_a_listener_seeks_where_reading_is_to_begin(
    story_servers: str, topic: str, make: Make
) -> None:
    post = Post(story_servers, topic, 1)
    post.send(10)
    member = make(story_servers, topic)
    member.subscribe([topic], on_assigned=lambda names: member.consumer.seek(names[0], 7))
    poll_until([member], lambda: member.values == post.sent[7:])


def test_what_a_listener_raises_is_raised_by_poll_and_reading_goes_on(
    story_servers: str, topic: str, make: Make
) -> None:
    post = Post(story_servers, topic, 1)
    post.send(3)
    member = make(story_servers, topic)

    def fail(_names: list[TopicPartition]) -> None:
        raise LookupError("no place to put them")

    member.subscribe([topic], on_assigned=fail)
    with pytest.raises(LookupError, match="no place"):
        poll_until([member], lambda: False)
    poll_until([member], lambda: member.values == post.sent)


def test_a_pattern_finds_topics_that_are_made_later(
    story_servers: str, topic: str, make: Make
) -> None:
    first = Post(story_servers, f"{topic}-a", 1)
    member = make(story_servers, topic, metadata_max_age_ms=100)
    member.subscribe(pattern=f"{topic}-[ab]")
    poll_until([member], lambda: member.share == first.all())
    second = Post(story_servers, f"{topic}-b", 2)
    Post(story_servers, f"{topic}-c", 1)
    second.send(4)
    poll_until([member], lambda: member.share == first.all() + second.all())
    poll_until([member], lambda: sorted(member.values) == second.sent)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_new_partitions_are_noticed_and_read_from_their_start(
    story_servers: str, topic: str, make: Make, strategy: str
) -> None:
    post = Post(story_servers, topic, 1)
    post.send(3)
    settings = {"metadata_max_age_ms": 100, "partition_assignment_strategy": strategy}
    members = [make(story_servers, topic, topic, **settings) for _ in range(2)]
    poll_until(members, lambda: together(members, 1))
    post.grow(4)
    post.send(20)
    poll_until(members, lambda: together(members, 4))
    poll_until(members, lambda: len(read_by(members)) == len(post.sent))
    assert read_by(members) == Counter(post.sent)


def test_a_topic_that_is_not_there_yet_is_waited_for(
    story_servers: str, topic: str, make: Make
) -> None:
    member = make(story_servers, topic, topic, allow_auto_create_topics=False)
    poll_until([member], lambda: member.heard == [("assigned", [])])
    post = Post(story_servers, topic, 2)
    post.send(2)
    poll_until([member], lambda: sorted(member.values) == post.sent)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_lives_on_when_its_coordinator_restarts(
    topic: str, make: Make, strategy: str
) -> None:
    with Broker(SETTINGS) as broker:
        post = Post(broker.bootstrap_servers, topic, 4)
        members = [
            make(broker.bootstrap_servers, topic, topic, partition_assignment_strategy=strategy)
            for _ in range(2)
        ]
        poll_until(members, lambda: together(members, 4))
        post.send(40)
        poll_until(members, lambda: len(read_by(members)) == 40)
        for one in members:
            one.consumer.commit()
        broker.restart()
        post.send(40)
        poll_until(members, lambda: len(read_by(members)) == 80)
        poll_until(members, lambda: together(members, 4))
        for one in members:
            one.consumer.commit()
            one.consumer.close()
        assert read_by(members) == Counter(post.sent)


def test_closing_leaves_at_once(story_servers: str, topic: str, make: Make) -> None:
    Post(story_servers, topic, 1)
    member = make(story_servers, topic, topic)
    poll_until([member], lambda: len(member.share) == 1)
    assert member_count(story_servers, topic) == 1
    member.consumer.close()
    assert member_count(story_servers, topic) == 0
    assert member.heard[-1] == ("revoked", [TopicPartition(topic, 0)])


def test_closing_does_not_wait_for_a_rebalance_that_others_hold_up(
    story_servers: str, topic: str, make: Make
) -> None:
    Post(story_servers, topic, 2)
    silent = make(story_servers, topic, topic)
    poll_until([silent], lambda: len(silent.share) == 2)
    late = make(story_servers, topic, topic)
    late.poll()  # joins, and has to wait for the other member, which does not poll
    began = time.monotonic()
    late.consumer.close()
    assert time.monotonic() - began < SESSION_MS / 1000
    assert member_count(story_servers, topic) == 1


class Reluctant(CuttingProxy):
    """Holds back responses to JoinGroup while its flag is set."""

    def __init__(self) -> None:
        super().__init__(every=1, api_key=ApiKey.JOIN_GROUP)
        self.is_reluctant = False
        self.has_answer, self._may_go = threading.Event(), asyncio.Event()

    def let_go(self) -> None:
        self._loop.call_soon_threadsafe(self._may_go.set)

    async def _pump_answers(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, asked: set[int]
    ) -> None:
        while True:
            frame = await _read_frame(source)
            if self.is_reluctant and int.from_bytes(frame[4:8]) in asked:
                self.has_answer.set()
                await self._may_go.wait()
            target.write(frame)
            await target.drain()


def test_no_member_waits_for_a_member_that_left_before_it_had_an_id() -> None:
    proxy = Reluctant()
    with broker_behind(proxy, SETTINGS) as servers, closing_members() as make:
        Post(servers, "letters", 2)
        first = make(servers, "readers", "letters")
        poll_until([first], lambda: len(first.share) == 2)
        proxy.is_reluctant = True
        hasty = make(servers, "readers", "letters", session_timeout_ms=10 * SESSION_MS)
        hasty.poll()
        assert proxy.has_answer.wait(SECONDS_MAX)
        threading.Timer(0.1, proxy.let_go).start()
        hasty.consumer.close()
        later = make(servers, "readers", "letters")
        began = time.monotonic()
        poll_until([first, later], lambda: shares([first, later]) == [1, 1])
        assert time.monotonic() - began < 5 * SESSION_MS / 1000


def test_a_cooperative_member_reads_and_commits_while_others_hold_up_a_rebalance(
    story_servers: str, topic: str, make: Make
) -> None:
    post = Post(story_servers, topic, 2)
    settings = {
        "partition_assignment_strategy": "cooperative-sticky",
        "enable_auto_commit": False,
    }
    silent, busy = (make(story_servers, topic, topic, **settings) for _ in range(2))
    poll_until([silent, busy], lambda: shares([silent, busy]) == [1, 1])
    newcomer = make(story_servers, topic, topic, **settings)
    generation_id = busy.consumer.group_metadata().generation_id
    post.send(2)
    poll_until([busy, newcomer], lambda: len(busy.values) == 1 and len(newcomer.heard) == 0)
    for _ in range(10):  # until its JoinGroup waits for the silent one
        busy.poll()
    post.send(2)
    began = time.monotonic()
    assert len(busy.consumer.poll(timeout=2 * SECONDS_MAX)) == 1
    assert time.monotonic() - began < SECONDS_MAX
    busy.consumer.commit()
    assert busy.consumer.group_metadata().generation_id == generation_id
    assert [row.offset for row in busy.consumer.committed(busy.share).values()] == [2]
    poll_until([silent, busy, newcomer], lambda: bool(newcomer.heard))


def test_a_commit_that_has_to_wait_for_a_rebalance_does_not_keep_polls_awake(
    story_servers: str, topic: str, make: Make
) -> None:
    Post(story_servers, topic, 2)
    settings = {
        "partition_assignment_strategy": "cooperative-sticky",
        "auto_commit_interval_ms": 1,
    }
    silent, busy = (make(story_servers, topic, topic, **settings) for _ in range(2))
    poll_until([silent, busy], lambda: shares([silent, busy]) == [1, 1])
    newcomer = make(story_servers, topic, topic, **settings)
    group = busy.consumer.core.needed_group()

    def is_calm() -> bool:
        """Whether no commit is due after its interval: a rebalance suspends commits."""
        time.sleep(0.02)
        return not group.is_due()

    poll_until([busy, newcomer], is_calm)
    assert is_calm()
    poll_until([silent, busy, newcomer], lambda: bool(newcomer.heard))


def test_a_consumer_that_unsubscribes_leaves_and_may_subscribe_again(
    story_servers: str, topic: str, make: Make
) -> None:
    letters, parcels = Post(story_servers, f"{topic}-a", 1), Post(story_servers, f"{topic}-b", 1)
    letters.send(2)
    member = make(story_servers, topic, f"{topic}-a")
    poll_until([member], lambda: member.values == letters.sent)
    member.consumer.unsubscribe()
    assert member_count(story_servers, topic) == 0
    assert member.consumer.assignment() == set()
    member.values.clear()
    parcels.send(2)
    member.subscribe([f"{topic}-b"])
    poll_until([member], lambda: member.values == parcels.sent)
    member.subscribe([f"{topic}-a", f"{topic}-b"])
    poll_until([member], lambda: member.share == letters.all() + parcels.all())


def test_what_was_committed_before_unsubscribing_is_not_taken_for_committed_afterwards(
    story_servers: str, topic: str, make: Make
) -> None:
    post = Post(story_servers, topic, 1)
    post.send(10)
    (name,) = post.all()
    member = make(story_servers, topic, topic, auto_commit_interval_ms=500)

    def stored() -> int:
        found = member.consumer.committed([name])
        return found[name].offset if found else 0

    poll_until([member], lambda: stored() == 10)
    member.consumer.unsubscribe()
    with Consumer(bootstrap_servers=story_servers, group_id=topic) as other:
        other.commit({name: 5})
    member.subscribe([topic])
    poll_until([member], lambda: len(member.values) == 15)
    member.consumer.unsubscribe()
    assert stored() == 10


@pytest.mark.parametrize("reason", ["more-room", None])
def test_a_rebalance_can_be_enforced(
    story_servers: str, topic: str, make: Make, monkeypatch: pytest.MonkeyPatch, reason: str | None
) -> None:
    told: list[str] = []
    join = GroupRequests.join

    def listen(
        requests: GroupRequests, member_id: str, metadata: Mapping[str, bytes], why: str
    ) -> Awaitable[JoinGroupResponse]:
        told.append(why)
        return join(requests, member_id, metadata, why)

    monkeypatch.setattr(GroupRequests, "join", listen)
    post = Post(story_servers, topic, 1)
    member = make(story_servers, topic, topic)
    poll_until([member], lambda: member.share == post.all())
    generation_id = member.consumer.group_metadata().generation_id
    told.clear()
    member.consumer.enforce_rebalance(reason)
    assert member.share == post.all()
    poll_until([member], lambda: len(member.heard) == 3)
    assert [what for what, _ in member.heard] == ["assigned", "revoked", "assigned"]
    assert member.consumer.group_metadata().generation_id == generation_id + 1
    assert told == [reason or ENFORCED]


def test_a_joining_member_ignores_further_rebalances(
    story_servers: str, topic: str, make: Make
) -> None:
    Post(story_servers, topic, 2)
    silent = make(story_servers, topic, topic)
    poll_until([silent], lambda: len(silent.share) == 2)
    late = make(story_servers, topic, topic)
    late.poll()  # waits for the other member, which does not poll
    late.consumer.enforce_rebalance()
    poll_until([silent, late], lambda: together([silent, late], 2))
    assert [what for what, _ in late.heard] == ["assigned"]


def test_without_a_group_no_rebalance_can_be_enforced(
    story_servers: str, topic: str, make: Make
) -> None:
    member = make(story_servers, topic)
    member.consumer.assign([(topic, 0)])
    with pytest.raises(ConsumerError, match="nothing is subscribed"):
        member.consumer.enforce_rebalance()
    with (
        Consumer(bootstrap_servers=story_servers) as alone,
        pytest.raises(ConsumerError, match=r"no group\.id"),
    ):
        alone.enforce_rebalance()


@pytest.mark.parametrize("name", ["subscribe", "assign"])
def test_to_ask_for_nothing_is_to_unsubscribe(
    story_servers: str, topic: str, make: Make, name: str
) -> None:
    post = Post(story_servers, topic, 1)
    member = make(story_servers, topic, topic)
    poll_until([member], lambda: member.share == post.all())
    getattr(member.consumer, name)([])
    assert [what for what, _ in member.heard] == ["assigned", "revoked"]
    assert member_count(story_servers, topic) == 0
    with pytest.raises(ConsumerError, match="nothing is subscribed"):
        member.poll()
    member.consumer.assign(post.all())
    getattr(member.consumer, name)([])
    assert member.consumer.assignment() == set()
    member.subscribe([topic])


def test_in_asyncio_to_ask_for_nothing_is_to_unsubscribe(story_servers: str, topic: str) -> None:
    async def story() -> None:
        async with AsyncConsumer(bootstrap_servers=story_servers, group_id=topic) as consumer:
            consumer.assign([(topic, 0)])
            consumer.assign([])
            await consumer.subscribe([topic])
            with pytest.raises(ValueError, match=r"unsubscribe\(\) first"):
                consumer.assign([])
            await consumer.subscribe([])
            assert consumer.subscription() == set()
            with pytest.raises(ValueError, match="topics or a pattern"):
                await consumer.subscribe()

    asyncio.run(story())


def test_what_is_committed_has_a_note_and_a_leader_epoch(
    story_servers: str, topic: str, make: Make
) -> None:
    post = Post(story_servers, topic, 2)
    post.send(10)
    member = make(story_servers, topic, topic, enable_auto_commit=False)
    poll_until([member], lambda: len(member.values) == 10)
    assert member.consumer.committed(post.all()) == {}
    noted = OffsetAndMetadata(3, 0, "up to the third")
    member.consumer.commit({post.all()[0]: noted})
    assert member.consumer.committed(post.all()) == {post.all()[0]: noted}
    member.consumer.commit()
    committed = member.consumer.committed(post.all())
    assert [committed[name].offset for name in post.all()] == [5, 5]


def test_commits_in_the_background_stay_in_order_and_call_back_in_poll(
    story_servers: str, topic: str, make: Make
) -> None:
    post = Post(story_servers, topic, 1)
    post.send(10)
    member = make(story_servers, topic, topic, enable_auto_commit=False)
    poll_until([member], lambda: len(member.values) == 10)
    partition, told = post.all()[0], []
    for offset in range(1, 11):
        member.consumer.commit_async(
            {partition: offset}, on_commit=lambda offsets, error: told.append((offsets, error))
        )
    poll_until([member], lambda: len(told) == 10)
    assert [offsets[partition].offset for offsets, _ in told] == list(range(1, 11))
    assert {error for _, error in told} == {None}
    assert member.consumer.committed([partition])[partition].offset == 10


def test_commits_that_begin_while_the_coordinator_is_away_arrive_in_order(
    topic: str, make: Make
) -> None:
    with Broker(SETTINGS) as broker:
        post = Post(broker.bootstrap_servers, topic, 1)
        post.send(10)
        member = make(broker.bootstrap_servers, topic, topic, enable_auto_commit=False)
        poll_until([member], lambda: len(member.values) == 10)
        partition, told = post.all()[0], []
        broker.stop()
        for offset in range(1, 11):
            member.consumer.commit_async(
                {partition: offset}, on_commit=lambda offsets, _: told.append(offsets)
            )
            member.poll()
        broker.start()
        poll_until([member], lambda: len(told) == 10)
        assert [offsets[partition].offset for offsets in told] == list(range(1, 11))
        assert member.consumer.committed([partition])[partition].offset == 10
        member.consumer.close()


def test_automatic_commits_never_count_what_is_still_being_dealt_with(
    story_servers: str, topic: str, make: Make
) -> None:
    post = Post(story_servers, topic, 1)
    post.send(10)
    settings = {"auto_commit_interval_ms": 0, "max_poll_records": 4}
    member = make(story_servers, topic, topic, **settings)
    seen_before_poll = 0
    watcher = make(story_servers, topic)
    while len(member.values) < 10:
        committed = watcher.consumer.committed(post.all())
        assert all(row.offset <= seen_before_poll for row in committed.values())
        seen_before_poll = len(member.values)
        member.poll()
    member.consumer.close()
    assert watcher.consumer.committed(post.all())[post.all()[0]].offset == 10


def test_a_transaction_commits_in_the_name_of_the_member(
    story_servers: str, topic: str, make: Make
) -> None:
    post = Post(story_servers, topic, 2)
    post.send(10)
    member = make(story_servers, topic, topic, enable_auto_commit=False)
    poll_until([member], lambda: len(member.values) == 10)
    read = {name: OffsetAndMetadata(member.consumer.position(name)) for name in member.share}
    with Producer(bootstrap_servers=story_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets_to_transaction(read, member.consumer.group_metadata())
    committed = member.consumer.committed(post.all())
    assert [committed[name].offset for name in post.all()] == [5, 5]


class Alphabetical(RangeAssignor):
    """Assigns every partition to the member with the lowest id."""

    name = "alphabetical"

    def assign(
        self, racks_by_topic: RacksByTopic, subscriptions: Mapping[str, MemberSubscription]
    ) -> Assignment:
        first, *others = sorted(subscriptions)
        assignment = super().assign(racks_by_topic, {first: subscriptions[first]})
        return assignment | {name: [] for name in others}


def test_an_own_assignor_assigns_the_partitions(story_servers: str, topic: str, make: Make) -> None:
    Post(story_servers, topic, 3)
    settings = {"partition_assignment_strategy": [Alphabetical()]}
    members = [make(story_servers, topic, topic, **settings) for _ in range(2)]
    poll_until(members, lambda: shares(members) == [0, 3] and all(one.heard for one in members))
    by_name = sorted(members, key=lambda one: one.consumer.group_metadata().member_id)
    assert len(by_name[0].share) == 3


class InBetween(CooperativeStickyAssignor):
    """Runs a hook in the leader after all members have joined and before the assignment."""

    name = "in-between"

    def __init__(self) -> None:
        self.do: Callable[[], object] = lambda: None

    def assign(
        self, racks_by_topic: RacksByTopic, subscriptions: Mapping[str, MemberSubscription]
    ) -> Assignment:
        self.do()
        return super().assign(racks_by_topic, subscriptions)


def is_refused_in_between(one: OttlaMember) -> bool:
    """Commit; return whether it was refused because a new generation exists."""
    if not one.polling.acquire(blocking=False):
        return False
    try:
        one.consumer.commit({one.share[0]: 0})
    except RebalanceInProgressError as error:
        return getattr(error.__cause__, "code", None) is ErrorCode.REBALANCE_IN_PROGRESS
    except RuntimeError:
        return False  # the leader cannot wait for itself
    finally:
        one.polling.release()
    return False


def test_a_commit_in_the_middle_of_a_rebalance_does_not_bring_about_another(
    story_servers: str, topic: str, make: Make
) -> None:
    post = Post(story_servers, topic, 2)
    assignor = InBetween()
    settings = {"metadata_max_age_ms": 100, "partition_assignment_strategy": [assignor]}
    members = [make(story_servers, topic, topic, **settings) for _ in range(2)]
    poll_until(members, lambda: shares(members) == [1, 1])
    refused: list[OttlaMember] = []

    def commit_as_follower() -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not refused and time.monotonic() < deadline:
            refused.extend(filter(is_refused_in_between, members))

    assignor.do = commit_as_follower
    post.grow(4)
    poll_until(members, lambda: shares(members) == [2, 2])
    generation = members[0].consumer.group_metadata().generation_id
    for _ in range(20):
        for one in members:
            one.poll()
    assert members[0].consumer.group_metadata().generation_id == generation
    assert refused


def test_asyncio_listeners_may_be_coroutines_that_use_the_consumer(
    story_servers: str, topic: str
) -> None:
    post = Post(story_servers, topic, 2)
    post.send(20)

    async def read() -> tuple[list[bytes | None], list[str], Mapping[TopicPartition, object]]:
        told, values = [], []
        consumer = AsyncConsumer(
            bootstrap_servers=story_servers,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )

        async def on_assigned(names: list[TopicPartition]) -> None:
            told.append(f"at {[await consumer.position(name) for name in names]}")

        async def on_revoked(names: list[TopicPartition]) -> None:
            await consumer.commit()
            told.append(f"gone {len(names)}")

        await consumer.subscribe([topic], on_assigned=on_assigned, on_revoked=on_revoked)
        async with asyncio.timeout(SECONDS_MAX):
            while len(values) < 20:
                values += [record.value for record in await consumer.poll(timeout=1)]
            await consumer.unsubscribe()
            committed = await consumer.committed(post.all())
        await consumer.close()
        return values, told, committed

    values, told, committed = asyncio.run(read())
    assert sorted(values) == sorted(post.sent)
    assert told == ["at [0, 0]", "gone 2"]
    assert {name: row.offset for name, row in committed.items()} == dict.fromkeys(post.all(), 10)
