"""A leader that only clients can reach acknowledges no record that other replicas may lose."""

from collections.abc import Iterator

import pytest

from ottla.testing.cluster import Cluster
from tests.cluster.load import say
from tests.cluster.modes import IN_BOTH_MODES
from tests.cluster.network import ZOOKEEPER, Network, use_gates
from tests.cluster.stories import told
from tests.cluster.watching import BROKERS, Watcher, settings_of

LIBRDKAFKA_MS = 30_000
"""The default: the broker itself has to detect that its lease has expired."""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


@pytest.fixture(scope="module")
def running(
    has_zookeeper: bool, network: Network, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Brokers that reach each other, and the controllers or ZooKeeper, through gates."""
    folder = tmp_path_factory.mktemp("cut-off")
    settings = settings_of(zookeeper=has_zookeeper)
    cluster = Cluster(BROKERS, settings, data_dir=folder, zookeeper=has_zookeeper)
    use_gates(cluster, network)
    with cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster, network: Network) -> Cluster:
    network.mend()
    return running


@IN_BOTH_MODES
@pytest.mark.parametrize("way", ["nobody-hears-it", "it-hears-nobody", "both"])
def test_a_leader_that_is_cut_off_from_all_but_its_clients_loses_nothing(
    way: str, cluster: Cluster, watcher: Watcher, network: Network
) -> None:
    name = f"cut-off-{way}"
    with told(name, cluster, watcher, request_timeout_ms=LIBRDKAFKA_MS) as story:
        leader = story.broker("leader")
        others = {ZOOKEEPER, *cluster.brokers} - {leader.id}
        out = [(leader.id, other) for other in others] if way != "it-hears-nobody" else []
        back = [(other, leader.id) for other in others] if way != "nobody-hears-it" else []
        network.cut(*out, *back)
        story.without(leader)
        say(f"goes on without it after {story.load.goes_on():.2f} s")
        network.mend()
        story.whole_again()
    assert story.load.longest_silence() * 1000 < LIBRDKAFKA_MS / 2
