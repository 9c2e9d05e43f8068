"""Ottla's clients while brokers die, pause, restart and give up leaderships.

Producers write by every method of the API, two consumers share a group, a third reads without one.
Every acknowledged record is in the log, once and in order, and no call fails or hangs.
"""

import time

import pytest

from ottla import Admin, Consumer, ElectionType, LogTruncationError, Producer, TopicPartition
from ottla.testing.cluster import Cluster
from tests.cluster.load import WAIT_SECONDS_MAX
from tests.cluster.our_copying import copied_in_cluster
from tests.cluster.our_stories import told_by_ours
from tests.cluster.stories import kill, pause
from tests.cluster.watching import Watcher


@pytest.mark.parametrize("role", ["leader", "coordinator"])
def test_nothing_is_lost_when_this_one_is_killed(
    role: str, cluster: Cluster, watcher: Watcher
) -> None:
    with told_by_ours(f"ours-killed-{role}", cluster, watcher) as story:
        kill(story, role)


@pytest.mark.parametrize("role", ["leader", "coordinator"])
def test_nothing_is_lost_when_this_one_sleeps_for_longer_than_its_session(
    role: str, cluster: Cluster, watcher: Watcher
) -> None:
    with told_by_ours(f"ours-paused-{role}", cluster, watcher) as story:
        pause(story, role)


def test_a_rolling_restart_gives_clients_no_error(cluster: Cluster, watcher: Watcher) -> None:
    with told_by_ours("ours-rolling", cluster, watcher) as story:
        before = [one.troubles for one in story.members]
        for broker in cluster.brokers.values():
            broker.stop()
            story.load.goes_on()
            broker.start()
            story.whole_again()
        assert [one.troubles for one in story.members] == before


def test_all_brokers_die_at_once_and_come_back(cluster: Cluster, watcher: Watcher) -> None:
    with told_by_ours("ours-blackout", cluster, watcher) as story:
        for broker in cluster.brokers.values():
            broker.kill()
        for broker in cluster.brokers.values():
            broker.launch()
        story.whole_again()


def test_partitions_that_move_to_other_brokers_are_followed(
    cluster: Cluster, watcher: Watcher
) -> None:
    name = "ours-moving"
    assignment = [[1, 2], [2, 1], [1, 2], [2, 1]]
    moved = {TopicPartition(name, number): [3, row[1]] for number, row in enumerate(assignment)}
    with told_by_ours(name, cluster, watcher, assignment=assignment) as story:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.partitions.reassign(moved)
            watcher.wait_until(lambda: not admin.partitions.reassignments(list(moved)))
        watcher.wait_until(lambda: all(watcher.leader(*place) == 3 for place in moved))
        story.whole_again()


def test_two_copiers_copy_every_record_once_under_kills(cluster: Cluster, watcher: Watcher) -> None:
    with copied_in_cluster(watcher, cluster, "ours-copier") as deaths:
        copying = deaths.copying
        deaths.kill_transaction_coordinator(0)
        copying.kill_copier(0)
        copying.goes_on()
        deaths.kill_group_coordinator()
        copying.pause_copier(1)
        copying.goes_on()


def test_a_consumer_of_records_lost_by_an_unclean_election_gets_an_error(
    cluster: Cluster, watcher: Watcher
) -> None:
    name = TopicPartition("unclean", 0)
    servers = cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        configs = {"min.insync.replicas": "1"}
        admin.topics.create(name.topic, assignments={0: [1, 2]}, configs=configs)
        watcher.wait_until(lambda: watcher.in_sync(name.topic) == {1, 2})
        with Consumer(bootstrap_servers=servers, auto_offset_reset="none") as consumer:
            consumer.assign([name])
            consumer.seek(name, 0)
            write(servers, name, 10)
            read(consumer, 10)
            cluster.brokers[2].kill()
            watcher.wait_until(lambda: watcher.in_sync(name.topic) == {1})
            write(servers, name, 5)
            read(consumer, 5)
            cluster.brokers[1].kill()
            watcher.wait_until(lambda: watcher.leader(name.topic) == -1)
            cluster.brokers[2].start()
            admin.partitions.elect(ElectionType.UNCLEAN, [name])
            with pytest.raises(LogTruncationError) as told:
                read(consumer, 1)
            assert (told.value.offset, told.value.diverged_at) == (15, 10)
            consumer.seek(name, told.value.diverged_at)
            write(servers, name, 2)
            read(consumer, 2)
            assert consumer.position(name) == 12


def write(servers: str, name: TopicPartition, count: int) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        sent = [producer.send(name.topic, b"v", partition=name.partition) for _ in range(count)]
        for one in sent:
            one.result(WAIT_SECONDS_MAX)


def read(consumer: Consumer, count: int) -> None:
    found = 0
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while found < count:
        assert time.monotonic() < deadline
        found += len(consumer.poll())
    assert found == count
