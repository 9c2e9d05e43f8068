"""A cluster moves from ZooKeeper to a quorum while clients work, and survives every fault."""

import pytest

from ottla.broker.metadata_store.zookeeper.migration_nodes import MigrationPhase
from ottla.metadata.image import ZkMigrationState
from ottla.simulation.workloads.workload import TOPIC
from ottla.simulation.world.randomness import dice
from ottla.simulation.world.zookeeper import MACHINE as ZOOKEEPER
from tests.simulation.migrating_cluster import CONTROLLERS, MigratingCluster
from tests.simulation.zookeeper_cluster import BROKERS


async def finalize(cluster: MigratingCluster) -> None:
    await cluster.set_phase(MigrationPhase.FINALIZING)
    await cluster.until(lambda: cluster.phase() is MigrationPhase.FINALIZED)
    state = ZkMigrationState.POST_MIGRATION
    await cluster.until(lambda: cluster.quorum_image().zk_migration_state == state)


def test_brokers_move_to_the_quorum_one_by_one_while_clients_work() -> None:
    async def story(cluster: MigratingCluster) -> None:
        async def move() -> None:
            await cluster.start_controllers()
            await cluster.roll_all(in_quorum=True)
            await finalize(cluster)
            before = cluster.zookeeper.tree.zxid
            await cluster.roll(BROKERS[0], in_quorum=True)
            assert cluster.zookeeper.tree.zxid == before, "ZooKeeper is written after the end"

        await cluster.work_through(move)

    MigratingCluster(seed=1).tell(story)


@pytest.mark.parametrize("moved", range(4))
def test_the_way_back_loses_nothing(moved: int) -> None:
    async def story(cluster: MigratingCluster) -> None:
        async def there_and_back() -> None:
            await cluster.start_controllers()
            for name in BROKERS[:moved]:
                await cluster.roll(name, in_quorum=True)
            for name in BROKERS[:moved]:
                await cluster.roll(name, in_quorum=False)
            for name in CONTROLLERS:
                await cluster.stop_controller(name)
            await cluster.roll_back()
            await cluster.until(lambda: cluster.controller() in BROKERS)

        await cluster.work_through(there_and_back)

    MigratingCluster(seed=20 + moved).tell(story)


@pytest.mark.parametrize("moved", range(4))
def test_the_active_controller_dies_after_each_step(moved: int) -> None:
    async def story(cluster: MigratingCluster) -> None:
        async def kill(name: str) -> None:
            cluster.kill_controller(name)
            await cluster.until(lambda: cluster.active() not in {None, name})
            cluster.launch(name)
            await cluster.until(cluster.is_whole)

        async def move() -> None:
            await cluster.start_controllers()
            for name in BROKERS[:moved]:
                await cluster.roll(name, in_quorum=True)
            for _ in range(2):
                active = cluster.active()
                assert active is not None
                await kill(active)
            for name in BROKERS[moved:]:
                await cluster.roll(name, in_quorum=True)
            await finalize(cluster)

        await cluster.work_through(move)

    MigratingCluster(seed=30 + moved).tell(story)


@pytest.mark.parametrize("delay_ms", [0, 5, 10, 20, 40, 80, 160, 320])
def test_the_active_controller_dies_while_it_copies(delay_ms: int) -> None:
    async def story(cluster: MigratingCluster) -> None:
        async def move() -> None:
            cluster.format()
            for name in CONTROLLERS:
                cluster.launch(name)
            await cluster.until(lambda: cluster.phase() is not None)
            await cluster.world.elapse(delay_ms / 1000)
            holder = cluster.holder()
            cluster.kill_controller(holder)
            await cluster.until(cluster.is_dual)
            cluster.launch(holder)
            await cluster.roll_all(in_quorum=True)
            await finalize(cluster)

        await cluster.work_through(move)

    MigratingCluster(seed=40 + delay_ms).tell(story)


@pytest.mark.parametrize("in_quorum", [False, True])
@pytest.mark.parametrize("moved", range(1, 3))
def test_a_broker_is_killed_and_comes_back_in_any_mode(moved: int, in_quorum: bool) -> None:
    async def story(cluster: MigratingCluster) -> None:
        async def move() -> None:
            await cluster.start_controllers()
            for name in BROKERS[:moved]:
                await cluster.roll(name, in_quorum=True)
            for name in BROKERS:
                await cluster.roll(name, in_quorum=in_quorum, is_killed=True)

        await cluster.work_through(move)

    MigratingCluster(seed=50 + moved).tell(story)


def test_all_controllers_die_and_come_back() -> None:
    async def story(cluster: MigratingCluster) -> None:
        async def move() -> None:
            await cluster.start_controllers()
            await cluster.roll(BROKERS[0], in_quorum=True)
            for name in CONTROLLERS:
                cluster.kill_controller(name)
            await cluster.world.elapse(5)
            assert cluster.controller() is None, "a broker has taken the office"
            for name in CONTROLLERS:
                cluster.launch(name)
            await cluster.until(lambda: cluster.active() is not None)
            await cluster.until(cluster.is_whole)

        await cluster.work_through(move)

    MigratingCluster(seed=60).tell(story)


def test_a_paused_controller_of_either_kind_writes_nothing_afterwards() -> None:
    async def story(cluster: MigratingCluster) -> None:
        async def move() -> None:
            broker = cluster.controller()
            assert broker is not None
            await cluster.start_controllers()
            active = cluster.active()
            assert active is not None
            cluster.machine(active).pause()
            await cluster.until(lambda: cluster.active() not in {None, active})
            cluster.machine(active).resume()
            await cluster.until(cluster.is_whole)

        await cluster.work_through(move)

    MigratingCluster(seed=61).tell(story)


def test_another_cluster_in_zookeeper_is_refused() -> None:
    async def story(cluster: MigratingCluster) -> None:
        await cluster.create_topic()
        cluster.format("another")
        for name in CONTROLLERS:
            cluster.launch(name)
        await cluster.until(lambda: bool(cluster.ends))
        (found, *_) = cluster.ends.values()
        assert f"has the cluster {cluster.cluster_id}" in found
        assert "formatted for the cluster another" in found
        assert cluster.controller() in BROKERS

    MigratingCluster(seed=70).tell(story, excused=[*CONTROLLERS])


def test_a_controller_without_zookeeper_does_not_become_active() -> None:
    async def story(cluster: MigratingCluster) -> None:
        await cluster.create_topic()
        await cluster.start_controllers()
        for name in CONTROLLERS:
            await cluster.stop_controller(name)
        for name in CONTROLLERS:
            cluster.launch(name, {})
        await cluster.until(lambda: bool(cluster.ends))
        (found, *_) = cluster.ends.values()
        assert "needs zookeeper.metadata.migration.enable=true and zookeeper.connect" in found

    MigratingCluster(seed=71).tell(story, excused=[*CONTROLLERS])


def test_nothing_is_finalized_while_a_broker_is_in_zookeeper() -> None:
    async def story(cluster: MigratingCluster) -> None:
        await cluster.create_topic()
        await cluster.start_controllers()
        await cluster.roll(BROKERS[0], in_quorum=True)
        await cluster.set_phase(MigrationPhase.FINALIZING)
        await cluster.until(cluster.is_dual)

    MigratingCluster(seed=72).tell(story)


def test_a_broker_in_zookeeper_does_not_start_after_the_end() -> None:
    async def story(cluster: MigratingCluster) -> None:
        await cluster.create_topic()
        await cluster.start_controllers()
        await cluster.roll_all(in_quorum=True)
        await finalize(cluster)
        await cluster.stop(BROKERS[0])
        cluster.set_mode(BROKERS[0], in_quorum=False)
        cluster.start(BROKERS[0])
        with pytest.raises(Exception, match="is finalized: start this broker"):
            await cluster.machine(BROKERS[0]).ended()

    MigratingCluster(seed=73).tell(story, excused=[BROKERS[0]])


def test_controllers_do_not_go_on_after_a_way_back() -> None:
    async def story(cluster: MigratingCluster) -> None:
        await cluster.create_topic()
        await cluster.start_controllers()
        await cluster.roll_back()
        await cluster.until(lambda: len(cluster.ends) == len(CONTROLLERS) - 1)
        assert all("was rolled back" in one for one in cluster.ends.values()), cluster.ends
        await cluster.until(lambda: cluster.controller() in BROKERS)
        await cluster.until(cluster.is_whole)
        assert cluster.partitions(BROKERS[0], TOPIC)

    MigratingCluster(seed=74).tell(story, excused=[*CONTROLLERS])


def test_after_a_way_back_newly_formatted_controllers_begin_again() -> None:
    async def story(cluster: MigratingCluster) -> None:
        async def twice() -> None:
            await cluster.start_controllers()
            await cluster.roll_all(in_quorum=True)
            await cluster.roll_all(in_quorum=False)
            for name in CONTROLLERS:
                await cluster.stop_controller(name)
            await cluster.roll_back()
            await cluster.until(lambda: cluster.controller() in BROKERS)
            cluster.wipe_controllers()
            await cluster.start_controllers()
            await cluster.roll_all(in_quorum=True)
            await finalize(cluster)

        await cluster.work_through(twice)

    MigratingCluster(seed=75).tell(story)


@pytest.mark.parametrize("seed", range(1000, 1005))
def test_random_steps_and_faults(seed: int) -> None:
    random = dice(seed, "steps")

    async def step(cluster: MigratingCluster) -> None:
        kind = random.choice(("roll", "kill", "dead controller", "paused", "without ZooKeeper"))
        if kind in {"roll", "kill"}:
            in_quorum = random.random() < 0.5
            await cluster.roll(
                random.choice(BROKERS), in_quorum=in_quorum, is_killed=kind == "kill"
            )
            return
        await cluster.until(lambda: cluster.active() is not None)
        active = cluster.active()
        assert active is not None
        if kind == "dead controller":
            cluster.kill_controller(active)
            await cluster.world.elapse(3 * random.random())
            cluster.launch(active)
        elif kind == "paused":
            cluster.machine(active).pause()
            await cluster.world.elapse(6 * random.random())
            cluster.machine(active).resume()
        else:
            cluster.cut_off(active, ZOOKEEPER)
            await cluster.world.elapse(5 * random.random())
            cluster.reconnect(active, ZOOKEEPER)
        await cluster.until(lambda: cluster.active() is not None)
        await cluster.until(cluster.is_whole)

    async def story(cluster: MigratingCluster) -> None:
        async def move() -> None:
            await cluster.start_controllers()
            for _ in range(10):
                await step(cluster)

        await cluster.work_through(move)

    MigratingCluster(seed).tell(story, excused=[*BROKERS, *CONTROLLERS])
