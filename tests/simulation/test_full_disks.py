"""A disk fills up: brokers with room lead, and the full broker rejoins when it has room."""

import errno

from ottla.simulation.stories.broker_program import DATA
from ottla.simulation.world.disk_nodes import OperationKind
from tests.simulation.zookeeper_cluster import BROKERS, ZooKeeperCluster

CHECK_SECONDS = 1
REBALANCE = {
    "leader.imbalance.check.interval.seconds": str(CHECK_SECONDS),
    "leader.imbalance.per.broker.percentage": "0",
}
HAND_OVER_SECONDS = 3.0
"""Two checks for full log dirs, and the time of the client's retry."""


def fill(cluster: ZooKeeperCluster, name: str) -> None:
    cluster.machine(name).disk.faults.fail_on(OperationKind.WRITE, DATA, errno.ENOSPC)


def leaders(cluster: ZooKeeperCluster, seen_by: str) -> set[str]:
    """Return the brokers that lead partitions of any topic, internal ones included."""
    topics = cluster.image(seen_by).topics.values()
    found = {one.leader for topic in topics for one in topic.partitions}
    return {BROKERS[leader] for leader in found if leader >= 0}


def leader_epochs(cluster: ZooKeeperCluster, seen_by: str) -> int:
    """Return how often any partition was given a leader."""
    topics = cluster.image(seen_by).topics.values()
    return sum(one.leader_epoch for topic in topics for one in topic.partitions)


def test_others_lead_while_a_disk_is_full_and_elections_do_not_move_leadership_back() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        async def trouble() -> None:
            full, others = BROKERS[0], BROKERS[1:]
            fill(cluster, full)
            await cluster.world.elapse(HAND_OVER_SECONDS)
            assert leaders(cluster, others[0]) == set(others)
            assert not any(0 in one.isr for one in cluster.partitions(others[0]))
            before = leader_epochs(cluster, others[0])
            await cluster.world.elapse(10 * CHECK_SECONDS)
            assert leader_epochs(cluster, others[0]) == before
            cluster.machine(full).disk.faults.heal()
            await cluster.until(lambda: full in leaders(cluster, others[0]))

        await cluster.work_through(trouble)

    ZooKeeperCluster(seed=1, settings=REBALANCE).tell(story, excused=BROKERS)


def test_full_disks_everywhere_leave_one_leader_that_recovers_by_itself() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        async def trouble() -> None:
            for name in BROKERS:
                fill(cluster, name)
            await cluster.world.elapse(HAND_OVER_SECONDS)
            before = leader_epochs(cluster, BROKERS[0])
            await cluster.world.elapse(60)
            assert leader_epochs(cluster, BROKERS[0]) == before, "leadership moves to and fro"
            assert all(one.leader >= 0 for one in cluster.partitions(BROKERS[0]))
            for name in BROKERS:
                cluster.machine(name).disk.faults.heal()

        await cluster.work_through(trouble)

    ZooKeeperCluster(seed=2).tell(story, excused=BROKERS)
