"""Every call of Ottla's clients ends within its timeout, even if no broker responds."""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla import Admin, ApiError, Consumer, Producer, TopicPartition
from ottla.testing.cluster import Cluster
from tests.cluster.load import WAIT_SECONDS_MAX, say
from tests.cluster.watching import Watcher

CALL_MS = 1_000
SETTINGS = {"request_timeout_ms": 800}
SECONDS_MAX = 20
"""Far more than CALL_MS, for a machine that is busy, and less than any default."""
FAILURES = (OSError, ApiError, RuntimeError)


@pytest.fixture(params=["killed", "paused"])
def silence(
    request: pytest.FixtureRequest, cluster: Cluster, watcher: Watcher
) -> Callable[[], None]:
    def begin() -> None:
        for broker in cluster.brokers.values():
            broker.kill() if request.param == "killed" else broker.pause()

    return begin


@pytest.fixture
def name(request: pytest.FixtureRequest, watcher: Watcher) -> TopicPartition:
    topic = re.sub(r"\W", "-", request.node.name)
    watcher.create_topic(topic, [[1, 2, 3]])
    return TopicPartition(topic, 0)


def succeeds(call: Callable[[], Any]) -> None:
    """Repeat the call: while brokers respond, a busy machine may take longer than CALL_MS."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        try:
            call()
        except FAILURES:
            assert time.monotonic() < deadline
        else:
            return


def ended(what: str, call: Callable[[], Any]) -> BaseException | None:
    """Call, check the time it took, and return the exception, if any."""
    began = time.monotonic()
    error: BaseException | None = None
    try:
        call()
    except FAILURES as raised:
        error = raised
    seconds = time.monotonic() - began
    say(f"{what}: {seconds:.1f} s, {error!r}")
    assert seconds < SECONDS_MAX, f"{what} took {seconds:.0f} s: {error!r}"
    return error


def test_every_call_of_a_producer_ends(
    silence: Callable[[], None], cluster: Cluster, name: TopicPartition
) -> None:
    servers = cluster.bootstrap_servers
    limits = {"max_block_ms": CALL_MS, "delivery_timeout_ms": CALL_MS, **SETTINGS}
    plain = Producer(bootstrap_servers=servers, linger_ms=0, **limits)
    other = Producer(bootstrap_servers=servers, transactional_id=name.topic, **limits)
    succeeds(lambda: plain.send(name.topic, b"there").result(SECONDS_MAX))
    succeeds(other.init_transactions)
    other.begin_transaction()
    other.send(name.topic, b"in a transaction")
    other.flush(SECONDS_MAX)
    silence()
    sent = plain.send(name.topic, b"nowhere")
    assert ended("result", lambda: sent.result(SECONDS_MAX)) is not None
    assert ended("send", lambda: plain.send("unknown", b"v")) is not None
    plain.send(name.topic, b"nowhere")
    assert ended("flush", lambda: plain.flush(SECONDS_MAX)) is None
    plain.send(name.topic, b"nowhere")
    ended("close", plain.close)
    offsets = {name: 1}
    assert ended("offsets", lambda: other.send_offsets_to_transaction(offsets, "g")) is not None
    assert ended("commit", other.commit_transaction) is not None
    ended("abort", other.abort_transaction)
    ended("close", other.close)


def test_every_call_of_a_consumer_ends(
    silence: Callable[[], None], cluster: Cluster, name: TopicPartition
) -> None:
    servers = cluster.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer:
        producer.send(name.topic, b"there")
    limits = {"default_api_timeout_ms": CALL_MS, **SETTINGS}
    member, alone = (
        Consumer(
            bootstrap_servers=servers, group_id=name.topic, auto_offset_reset="earliest", **limits
        )
        for _ in range(2)
    )
    alone.assign([name])
    member.subscribe([name.topic])
    assert member.poll(timeout=None)
    silence()
    assert ended("poll", lambda: member.poll(timeout=CALL_MS / 1000)) is None
    assert ended("commit", member.commit) is not None
    assert ended("committed", lambda: member.committed([name])) is not None
    assert ended("position", lambda: alone.position(name)) is not None
    assert ended("end_offsets", lambda: member.end_offsets([name])) is not None
    assert ended("times", lambda: member.offsets_for_times({name: 0})) is not None
    assert ended("topics", member.topics) is not None
    assert ended("partitions_for", lambda: alone.partitions_for("unknown")) is not None
    member.commit_async({name: 1})
    ended("unsubscribe", member.unsubscribe)
    ended("close", member.close)
    ended("close", alone.close)
    newcomer = Consumer(bootstrap_servers=servers, group_id=name.topic, **limits)
    ended("subscribe", lambda: newcomer.subscribe([name.topic]))
    ended("poll", lambda: newcomer.poll(timeout=1))
    ended("close", newcomer.close)


def test_every_call_of_an_admin_ends(
    silence: Callable[[], None], cluster: Cluster, name: TopicPartition
) -> None:
    servers = cluster.bootstrap_servers
    admin = Admin(bootstrap_servers=servers, default_api_timeout_ms=CALL_MS, **SETTINGS)
    succeeds(lambda: admin.offsets.ends([name]))
    silence()
    assert ended("describe", lambda: admin.topics.describe(name.topic)) is not None
    assert ended("create", lambda: admin.topics.create("another")) is not None
    assert ended("ends", lambda: admin.offsets.ends([name])) is not None
    assert ended("groups", admin.groups.list) is not None
    assert ended("committed", lambda: admin.groups.committed(name.topic)) is not None
    assert ended("log dirs", admin.cluster.log_dirs) is not None
    ended("close", admin.close)
