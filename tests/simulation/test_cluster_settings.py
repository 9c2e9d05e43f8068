"""The controller's background work by its settings, and a stopping broker's wait for it."""

import pytest

from ottla.simulation.world.zookeeper import MACHINE as ZOOKEEPER
from tests.simulation.zookeeper_cluster import BROKERS, ZooKeeperCluster

CHECK_SECONDS = 30
REBALANCE = {"leader.imbalance.check.interval.seconds": str(CHECK_SECONDS)}


async def depose(cluster: ZooKeeperCluster) -> str:
    """Make a non-preferred replica lead the first partition; return the preferred one."""
    await cluster.create_topic()
    preferred = BROKERS[cluster.partitions(BROKERS[0])[0].replicas[0]]
    await cluster.stop(preferred)
    cluster.start(preferred)
    await cluster.until(cluster.is_whole)
    assert leader_of(cluster) != preferred
    return preferred


def leader_of(cluster: ZooKeeperCluster) -> str:
    return BROKERS[cluster.partitions(cluster.running()[0])[0].leader]


def test_preferred_replicas_lead_again_within_the_interval() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        preferred = await depose(cluster)
        began = cluster.world.loop.time()
        await cluster.until(lambda: leader_of(cluster) == preferred)
        assert cluster.world.loop.time() - began <= CHECK_SECONDS + 1

    ZooKeeperCluster(seed=1, settings=REBALANCE).tell(story)


@pytest.mark.parametrize(
    "setting",
    [("auto.leader.rebalance.enable", "false"), ("leader.imbalance.per.broker.percentage", "100")],
)
def test_leaders_stay_without_a_request_to_change(setting: tuple[str, str]) -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        preferred = await depose(cluster)
        await cluster.world.elapse(2 * CHECK_SECONDS)
        assert leader_of(cluster) != preferred

    ZooKeeperCluster(seed=1, settings={**REBALANCE, **dict([setting])}).tell(story)


def test_a_broker_that_finds_no_controller_stops_when_its_patience_ends() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        await cluster.create_topic()
        stopping = next(name for name in BROKERS if name != cluster.controller())
        others = [name for name in BROKERS if name != stopping]
        cluster.cut_off(stopping, ZOOKEEPER, *others)
        began = cluster.world.loop.time()
        await cluster.stop(stopping)
        assert 1 <= cluster.world.loop.time() - began < 4
        cluster.reconnect(stopping, ZOOKEEPER, *others)

    patience = {
        "controlled.shutdown.max.retries": "4",
        "controlled.shutdown.retry.backoff.ms": "250",
    }
    ZooKeeperCluster(seed=1, settings=patience).tell(story)


def test_without_controlled_shutdown_a_broker_that_leads_just_goes() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        await cluster.create_topic()
        leaving = leader_of(cluster)
        witness = next(name for name in BROKERS if name != leaving)
        epoch = cluster.partitions(witness)[0].leader_epoch
        assert not cluster.image(witness).brokers[BROKERS.index(leaving)].is_shutting_down
        await cluster.stop(leaving)
        # It asked no controller: the other brokers find out at the end of its session.
        await cluster.until(lambda: cluster.partitions(witness)[0].leader_epoch > epoch)
        assert not cluster.image(witness).brokers[BROKERS.index(leaving)].is_shutting_down

    ZooKeeperCluster(seed=1, settings={"controlled.shutdown.enable": "false"}).tell(story)
