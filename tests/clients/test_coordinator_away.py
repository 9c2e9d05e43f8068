"""Members that lose their coordinator during a rebalance."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.consumer.group.membership import GroupMembership
from ottla.clients.consumer.state.errors import WakeupError
from ottla.model.identifiers import TopicPartition
from ottla.testing import Broker
from tests.clients.conftest import SETTINGS
from tests.clients.group_members import OttlaMember, Post, closing_members, poll_until

STRATEGIES = ["range", "cooperative-sticky"]
SLACK_SECONDS = 20.0
"""For a busy machine; far less than the minute of default.api.timeout.ms."""


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "ottla.clients")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as broker:
        yield broker


def poll_in_time(member: OttlaMember, seconds: float) -> None:
    began = time.monotonic()
    member.values += [record.value for record in member.consumer.poll(timeout=seconds)]
    assert time.monotonic() - began < seconds + SLACK_SECONDS


@contextmanager
def held_up(member: OttlaMember) -> Iterator[None]:
    """Hold the lock of commits, as a slow commit would; records can still be read."""
    group = member.consumer.core.group
    assert isinstance(group, GroupMembership)
    turn, loop = group._offsets._turn, member.consumer._thread.loop
    asyncio.run_coroutine_threadsafe(turn.acquire(), loop).result()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(turn.release)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_poll_ends_in_time_though_a_rebalance_is_due(broker: Broker, strategy: str) -> None:
    old, new = (Post(broker.bootstrap_servers, name, 1) for name in ("old", "new"))
    old.send(10)
    with closing_members() as make:
        settings = {"partition_assignment_strategy": strategy}
        member = make(broker.bootstrap_servers, "readers", "old", **settings)
        poll_until([member], lambda: len(member.values) == 10)
        broker.stop()
        member.subscribe(["new"])
        for seconds in (0.3, 0.0, 0.3):
            poll_in_time(member, seconds)
        assert [what for what, _ in member.heard] == ["assigned"]
        broker.start()
        poll_until([member], lambda: member.share == new.all())
        assert [what for what, _ in member.heard if what != "assigned"] == ["revoked"]
        committed = member.consumer.committed(old.all())
        assert [row.offset for row in committed.values()] == [10]


def test_what_stays_is_read_while_what_goes_waits_for_its_commit(broker: Broker) -> None:
    going, staying = (Post(broker.bootstrap_servers, name, 1) for name in ("going", "staying"))
    going.send(10)
    with closing_members() as make:
        settings = {
            "partition_assignment_strategy": "cooperative-sticky",
            "max_poll_records": 5,
        }
        member = make(broker.bootstrap_servers, "readers", **settings)
        member.subscribe(["going", "staying"])
        poll_until([member], lambda: len(member.values) == 5)
        group = member.consumer.core.needed_group()
        with held_up(member):
            member.subscribe(["staying"])
            staying.send(3)
            poll_until([member], lambda: len(member.values) == 8)
            assert not group.is_due()
            assert going.all()[0] in member.share
        poll_until([member], lambda: member.share == staying.all())
        committed = member.consumer.committed(going.all())
        assert [row.offset for row in committed.values()] == [5]


def test_a_consumer_keeps_a_partition_that_it_subscribes_to_again(broker: Broker) -> None:
    post = Post(broker.bootstrap_servers, "letters", 1)
    Post(broker.bootstrap_servers, "others", 1)
    with closing_members() as make:
        strategy = "cooperative-sticky"
        member = make(
            broker.bootstrap_servers, "readers", "letters", partition_assignment_strategy=strategy
        )
        post.send(1)
        poll_until([member], lambda: len(member.values) == 1)
        with held_up(member):
            member.subscribe(["others"])
            member.poll()
            member.subscribe(["letters"])
            member.poll()
        post.send(1)
        poll_until([member], lambda: len(member.values) == 2)
        assert [what for what, _ in member.heard if what != "assigned"] == []


def test_what_others_are_given_goes_once_it_is_committed(broker: Broker) -> None:
    post = Post(broker.bootstrap_servers, "letters", 2)
    post.send(2)
    settings = {"partition_assignment_strategy": "cooperative-sticky"}
    with closing_members() as make:
        first = make(broker.bootstrap_servers, "readers", "letters", **settings)
        poll_until([first], lambda: len(first.values) == 2)
        with held_up(first):
            second = make(broker.bootstrap_servers, "readers", "letters", **settings)
            poll_until([first, second], lambda: bool(second.heard))
            for seconds in (0.2, 0.0, 0.2):
                poll_in_time(first, seconds)
                second.poll()
            assert first.share == post.all()
            assert second.share == []
            post.send(2)
            poll_until([first], lambda: len(first.values) == 3)
        poll_until([first, second], lambda: len(first.share) == len(second.share) == 1)
        poll_until([first, second], lambda: len(second.values) == 1)
        assert [names for what, names in first.heard if what == "revoked"] == [second.share]
        assert sorted(first.values + second.values) == post.sent


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_closing_ends_in_time_after_a_rebalance_that_could_not_begin(
    broker: Broker, strategy: str
) -> None:
    post = Post(broker.bootstrap_servers, "letters", 1)
    post.send(1)
    with closing_members() as make:
        member = make(
            broker.bootstrap_servers, "readers", "letters", partition_assignment_strategy=strategy
        )
        poll_until([member], lambda: len(member.values) == 1)
        broker.stop()
        member.subscribe(["others"])
        poll_in_time(member, 0.1)
        began = time.monotonic()
        member.consumer.close(timeout=0.5)
        assert time.monotonic() - began < 0.5 + SLACK_SECONDS
        assert [what for what, _ in member.heard] == ["assigned", "revoked"]


@pytest.mark.parametrize("has_joined", [False, True])
def test_wakeup_ends_a_poll_that_waits_for_the_coordinator(
    broker: Broker, has_joined: bool
) -> None:
    post = Post(broker.bootstrap_servers, "letters", 1)
    post.send(1)
    with closing_members() as make:
        member = make(broker.bootstrap_servers, "readers", "letters")
        if has_joined:
            poll_until([member], lambda: len(member.values) == 1)
            member.subscribe(["others"])
        broker.stop()
        began = time.monotonic()
        timer = threading.Timer(0.3, member.consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            member.consumer.poll(timeout=60)
        assert time.monotonic() - began < 0.3 + SLACK_SECONDS
        timer.join()
        member.consumer.close(timeout=0.1)


def test_wakeup_ends_a_commit_that_waits(broker: Broker) -> None:
    post = Post(broker.bootstrap_servers, "letters", 1)
    post.send(1)
    with closing_members() as make:
        member = make(broker.bootstrap_servers, "readers", "letters", enable_auto_commit=False)
        poll_until([member], lambda: len(member.values) == 1)
        with held_up(member):
            began = time.monotonic()
            timer = threading.Timer(0.3, member.consumer.wakeup)
            timer.start()
            with pytest.raises(WakeupError):
                member.consumer.commit()
            assert time.monotonic() - began < 0.3 + SLACK_SECONDS
            timer.join()
        assert member.consumer.committed(post.all()) == {}
        member.consumer.wakeup()
        with pytest.raises(WakeupError):
            member.consumer.commit()
        member.consumer.commit()
        committed = member.consumer.committed(post.all())
        assert [row.offset for row in committed.values()] == [1]


def test_wakeup_does_not_disturb_the_last_commit_of_a_closing_consumer(broker: Broker) -> None:
    post = Post(broker.bootstrap_servers, "letters", 1)
    post.send(1)
    with closing_members() as make:
        member = make(broker.bootstrap_servers, "readers", enable_auto_commit=False)
        member.subscribe(["letters"], on_revoked=lambda _names: member.consumer.commit())
        poll_until([member], lambda: len(member.values) == 1)
        member.consumer.wakeup()
        member.consumer.close()
        late = make(broker.bootstrap_servers, "readers")
        committed = late.consumer.committed(post.all())
        assert [row.offset for row in committed.values()] == [1]


def test_an_asyncio_poll_ends_in_time_though_a_rebalance_is_due(broker: Broker) -> None:
    post = Post(broker.bootstrap_servers, "letters", 1)
    post.send(1)
    heard: list[tuple[str, list[TopicPartition]]] = []

    async def on_revoked(names: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        heard.append(("revoked", names))

    async def story() -> None:
        settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "readers"}
        async with AsyncConsumer(settings, auto_offset_reset="earliest") as consumer:
            await consumer.subscribe(["letters"], on_revoked=on_revoked)
            while not await consumer.poll():
                pass
            await asyncio.to_thread(broker.stop)
            await consumer.subscribe(["others"], on_revoked=on_revoked)
            async with asyncio.timeout(2 * SLACK_SECONDS):
                await consumer.poll(timeout=0.2)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.poll(timeout=None), 0.1)
            assert heard == []
            await asyncio.to_thread(broker.start)
            while not heard:
                await consumer.poll(timeout=0.1)
            committed = await consumer.committed(post.all())
            assert [row.offset for row in committed.values()] == [1]
            assert heard == [("revoked", post.all())]

    asyncio.run(story())
