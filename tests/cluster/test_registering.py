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
    with Cluster(BROKERS, SETTINGS, data_dir=folder, registries=True) as cluster:
        yield cluster
        mend(cluster)


def test_a_schema_registered_at_one_broker_is_at_once_known_to_that_broker(
    cluster: Cluster,
) -> None:
    for number, broker in cluster.brokers.items():
        client = connect([broker.registry_url], 0)
        found = client.register_schema(f"forwarded-{number}", schema_of("Letter"))
        assert (
            found
            == connect([broker.registry_url], 0)
            .lookup_schema(f"forwarded-{number}", schema_of("Letter"))
            .schema_id
        )
        assert f"forwarded-{number}" in client.get_subjects()


def test_one_text_has_one_id_at_every_broker(cluster: Cluster) -> None:
    ids = {
        connect([broker.registry_url], 0).register_schema("same", schema_of("Same"))
        for broker in cluster.brokers.values()
    }
    assert len(ids) == 1


def test_the_topic_has_three_replicas(cluster: Cluster, watcher: Watcher) -> None:
    connect(cluster.registry_urls, 0).register_schema("same", schema_of("Same"))
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
    known = connect(urls, 0).register_schema("same", schema_of("Same"))
    assert violations(urls, Acknowledged()) == ["nothing was acknowledged"]
    assert violations(urls, Acknowledged({("same", "Same"): {known, known + 1}}))
    assert violations(urls, Acknowledged({("same", "Same"): {known}, ("same", "T"): {known}}))
    assert violations(urls, Acknowledged({("same", "Lost"): {known}}))
