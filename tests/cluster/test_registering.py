"""The registry in a cluster: writes through any broker, and kills of the leader of `_schemas-0`."""

from collections.abc import Iterator

import pytest

from ottla.testing.cluster import Cluster
from tests.cluster.conftest import mend
from tests.cluster.registering import (
    TOPIC,
    Acknowledged,
    connect,
    kill_leader,
    registering,
    schema_of,
    violations,
)
from tests.cluster.watching import BROKERS, SETTINGS, Watcher


@pytest.fixture(scope="module")
def running(needs_zookeeper: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("registries")
    with Cluster(BROKERS, SETTINGS, data_dir=folder, registries=True, zookeeper=True) as cluster:
        yield cluster
        mend(cluster)


def registered_at(url: str, subject: str, name: str) -> int:
    with connect([url], 0) as client:
        return client.register_schema(subject, schema_of(name))


def test_a_schema_registered_at_one_broker_is_at_once_known_to_that_broker(
    cluster: Cluster,
) -> None:
    for number, broker in cluster.brokers.items():
        subject = f"forwarded-{number}"
        found = registered_at(broker.registry_url, subject, "Letter")
        with connect([broker.registry_url], 0) as client:
            assert client.lookup_schema(subject, schema_of("Letter")).schema_id == found
            assert subject in client.get_subjects()


def test_one_text_has_one_id_at_every_broker(cluster: Cluster) -> None:
    assert len({registered_at(url, "same", "Same") for url in cluster.registry_urls}) == 1


def test_the_topic_has_three_replicas(cluster: Cluster, watcher: Watcher) -> None:
    registered_at(cluster.registry_urls[0], "same", "Same")
    watcher.wait_until(lambda: watcher.in_sync(TOPIC) == set(cluster.brokers))


def test_no_schema_is_lost_and_no_id_given_twice_while_leaders_are_killed(
    cluster: Cluster, watcher: Watcher
) -> None:
    with registering(cluster) as clients:
        for _ in range(2):
            kill_leader(cluster, watcher)
    assert violations(cluster.registry_urls, clients.acknowledged) == []


def test_the_check_finds_what_is_missing(cluster: Cluster) -> None:
    urls = cluster.registry_urls[:1]
    known = registered_at(urls[0], "same", "Same")
    assert violations(urls, Acknowledged()) == ["nothing was acknowledged"]
    assert violations(urls, Acknowledged({("same", "Same"): {known, known + 1}}))
    assert violations(urls, Acknowledged({("same", "Same"): {known}, ("same", "T"): {known}}))
    assert violations(urls, Acknowledged({("same", "Lost"): {known}}))
