"""A broker's disk is full: others lead, reads continue, and it recovers without a restart."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.model.topic_names import CONSUMER_OFFSETS_TOPIC
from ottla.testing.broker_process import BrokerProcess
from ottla.testing.cluster import Cluster
from tests import full_disk
from tests.cluster.load import say
from tests.cluster.modes import IN_A_QUORUM, IN_BOTH_MODES
from tests.cluster.stories import ASSIGNMENT, Story, told
from tests.cluster.watching import BROKERS, OFFSETS_PARTITIONS, Watcher, settings_of

FULL, OTHERS = 1, {2, 3}
REBALANCE = {
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "0",
}
SILENCE_SECONDS_MAX = 10
"""A failed handover takes as long as the disk is full."""
READ_SECONDS_MAX = 30
WAITING = "this controller waits until there is room"
LOOKS_SECONDS = 3
"""Within this time leadership is balanced three times, and full log dirs are checked six times."""


@pytest.fixture(scope="module")
def running(has_zookeeper: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if missing := full_disk.why_not():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("cluster")
    cluster = Cluster(
        BROKERS,
        settings_of(zookeeper=has_zookeeper) | REBALANCE,
        data_dir=folder,
        zookeeper=has_zookeeper,
    )
    with pytest.MonkeyPatch.context() as patch:
        disks = [broker.data_dir for broker in cluster.brokers.values()]
        for name, value in full_disk.environ(folder, disks).items():
            patch.setenv(name, value)
        with cluster:
            yield cluster


def lines(broker: BrokerProcess, text: str) -> int:
    return broker.log.read_text().count(text)


def leaders(watcher: Watcher, topic: str) -> set[int]:
    every = [(topic, row) for row in range(len(ASSIGNMENT))]
    every += [(CONSUMER_OFFSETS_TOPIC, row) for row in range(OFFSETS_PARTITIONS)]
    return {watcher.leader(*one) for one in every}


def read_acknowledged(story: Story) -> None:
    """Read all records acknowledged so far; later records may stay uncommitted for a while."""
    left = {(one.partition, one.offset) for one in story.load.acknowledged}
    consumer = Consumer(
        {"bootstrap.servers": story.load.servers, "group.id": "reader", "log_level": 0}
    )
    try:
        consumer.assign([TopicPartition(story.name, row, 0) for row in range(len(ASSIGNMENT))])
        deadline = time.monotonic() + READ_SECONDS_MAX
        while left:
            assert time.monotonic() < deadline, f"{len(left)} acknowledged records are not read"
            for message in consumer.consume(1000, timeout=0.2):
                left.discard((message.partition(), message.offset()))
    finally:
        consumer.close()


@IN_BOTH_MODES
def test_others_lead_while_a_disk_is_full(cluster: Cluster, watcher: Watcher) -> None:
    broker = cluster.brokers[FULL]
    with told("full", cluster, watcher) as story:
        assert FULL in leaders(watcher, "full")
        full_disk.fill(broker.data_dir)
        handed_over = watcher.wait_until(lambda: leaders(watcher, "full") <= OTHERS)
        say(f"others lead after {handed_over:.2f} s")
        story.load.goes_on()
        before = watcher.leader_epochs("full", len(ASSIGNMENT))
        time.sleep(LOOKS_SECONDS)
        assert watcher.leader_epochs("full", len(ASSIGNMENT)) == before
        assert all(watcher.in_sync("full", row) == OTHERS for row in range(len(ASSIGNMENT)))
        assert "cannot follow" not in broker.log.read_text()

        full_disk.free(broker.data_dir)
        story.whole_again()
        watcher.wait_until(lambda: FULL in leaders(watcher, "full"))
    assert lines(broker, "is full: ") == 1
    assert lines(broker, "has room again") == 1
    assert "Traceback" not in broker.log.read_text()
    assert story.load.longest_silence() < SILENCE_SECONDS_MAX


@IN_A_QUORUM
def test_full_disks_everywhere_leave_leaders_that_recover(
    cluster: Cluster, watcher: Watcher
) -> None:
    brokers = cluster.brokers.values()
    with told("packed", cluster, watcher) as story:
        before = {broker.id: lines(broker, WAITING) for broker in brokers}
        for broker in brokers:
            full_disk.fill(broker.data_dir)
        if cluster.has_quorum:
            # The metadata log is on the same disks. The third controller has nothing to write.
            watcher.wait_until(
                lambda: sum(lines(one, WAITING) > before[one.id] for one in brokers) > 1
            )
            read_acknowledged(story)
        else:
            stay_leaders(watcher, story)
        for broker in brokers:
            full_disk.free(broker.data_dir)
        story.whole_again()


def stay_leaders(watcher: Watcher, story: Story) -> None:
    """The last replicas in sync go on to lead, and serve reads."""
    rows = range(len(ASSIGNMENT))
    watcher.wait_until(lambda: all(len(watcher.in_sync("packed", row)) == 2 for row in rows))
    before = watcher.leader_epochs("packed", len(ASSIGNMENT))
    read_acknowledged(story)
    time.sleep(LOOKS_SECONDS)
    assert watcher.leader_epochs("packed", len(ASSIGNMENT)) == before
