"""A broker loses its disk: other replicas have its records, and it fetches all of them again."""

import shutil

from ottla.testing.cluster import Cluster
from tests.cluster.load import Load
from tests.cluster.stories import counted, told, wipe
from tests.cluster.watching import Watcher

NO_PRODUCER = -1


def test_a_broker_that_comes_back_with_an_empty_disk_gets_everything_again(
    cluster: Cluster, watcher: Watcher
) -> None:
    with told("wiped", cluster, watcher) as story:
        wipe(story, "leader")


def test_no_wiped_replica_leads_while_the_last_in_sync_replica_is_away(
    cluster: Cluster, watcher: Watcher
) -> None:
    load = written_and_killed("others-are-wiped", cluster, watcher)
    for number in (2, 3):
        shutil.rmtree(cluster.brokers[number].data_dir)
        cluster.brokers[number].start()
    watcher.create_topic("of-others", [[2, 3]])  # so the controller has seen both
    assert watcher.leader(load.topic) == NO_PRODUCER
    cluster.brokers[1].start()
    assert_all_is_there(load, watcher)


def test_the_last_replica_in_sync_does_not_lead_if_its_own_disk_is_empty(
    cluster: Cluster, watcher: Watcher
) -> None:
    load = written_and_killed("last-is-wiped", cluster, watcher)
    shutil.rmtree(cluster.brokers[1].data_dir)
    cluster.brokers[1].start()
    watcher.create_topic("of-the-last", [[1]])  # so the controller has seen it
    assert watcher.leader(load.topic) == NO_PRODUCER
    for number in (2, 3):
        cluster.brokers[number].start()
    assert_all_is_there(load, watcher)


def written_and_killed(name: str, cluster: Cluster, watcher: Watcher) -> Load:
    """Write to a topic, and kill its replicas one after another; the first to die leads last."""
    watcher.create_topic(name, [[1, 2, 3]])
    with Load(cluster.bootstrap_servers, name, 1) as load:
        load.wait_for(lambda: len(load.acknowledged) > 500)
    for number, left in ((2, {1, 3}), (3, {1})):
        cluster.brokers[number].kill()
        watcher.wait_until(lambda: watcher.in_sync(name) == left)
    cluster.brokers[1].kill()
    return load


def assert_all_is_there(load: Load, watcher: Watcher) -> None:
    watcher.wait_until_whole()
    counted(load)
    watcher.wait_until_replicas_are_equal(load.topic, load.partitions)
