"""Aimed faults: they hit a certain replica at a certain moment."""

from collections.abc import Awaitable, Callable

import pytest

from ottla.broker.startup.assembly import Broker
from ottla.replication.partition import Partition
from ottla.simulation.faults.cluster_nemesis import Moment
from ottla.simulation.stories.cluster_story import ClusterStory, Setting

QUIET = Setting(partitions=1, members=0, has_operator=False)
SECONDS_MAX = 30.0
Disturb = Callable[[ClusterStory], Awaitable[None]]


def tell(disturb: Disturb, seed: int = 1) -> None:
    """Inject faults into a cluster; no invariant may be violated afterwards."""
    story = ClusterStory(seed, QUIET)
    assert not story.run(lambda: disturb(story)).violations


def replicas(story: ClusterStory, machine: str) -> list[Partition]:
    broker = story.broker(machine)
    assert isinstance(broker, Broker)
    return list(broker.partitions)


def is_ahead(one: Partition) -> bool:
    """Return whether a leader has records beyond the position of every follower."""
    followers = () if one.in_sync is None else one.in_sync.followers.values()
    return bool(followers) and all(each.end_offset < one.log.end_offset for each in followers)


IN_QUIET = {
    Moment.APPENDED: is_ahead,
    Moment.COMMITTED: lambda one: one.in_sync is not None and one.high_watermark > 0,
}
AFTER_A_LEADER = {
    Moment.ELECTED: lambda one: one.in_sync is not None and one.leader_epoch > 0,
    Moment.FOLLOWED: lambda one: one.in_sync is None and one.leader_epoch > 0,
}
AFTER_A_FOLLOWER = {
    Moment.ASKED: lambda one: one.in_sync is not None and one.in_sync.proposed is not None,
    Moment.DECIDED: lambda one: one.in_sync is not None and len(one.in_sync.isr) == 2,
}


@pytest.mark.parametrize("moment", IN_QUIET, ids=lambda moment: moment.name)
def test_what_happens_all_the_time_is_waited_for(moment: Moment) -> None:
    async def disturb(story: ClusterStory) -> None:
        machine = await story.moments.next(moment, SECONDS_MAX)
        assert machine is not None
        assert any(map(IN_QUIET[moment], replicas(story, machine)))

    tell(disturb)


@pytest.mark.parametrize("moment", AFTER_A_LEADER, ids=lambda moment: moment.name)
def test_what_comes_of_the_death_of_a_leader_is_waited_for(moment: Moment) -> None:
    async def disturb(story: ClusterStory) -> None:
        (leader,) = story.leaders()
        story.world.machine(leader).kill()
        machine = await story.moments.next(moment, SECONDS_MAX)
        assert machine not in {None, leader}
        assert any(map(AFTER_A_LEADER[moment], replicas(story, str(machine))))
        story.start(story.world.machine(leader))

    tell(disturb)


@pytest.mark.parametrize("moment", AFTER_A_FOLLOWER, ids=lambda moment: moment.name)
def test_what_comes_of_the_death_of_a_follower_is_waited_for(moment: Moment) -> None:
    async def disturb(story: ClusterStory) -> None:
        (leader,) = story.leaders()
        victim = story.world.machine(next(one for one in story.names if one != leader))
        victim.kill()
        story.start(victim)
        machine = await story.moments.next(moment, SECONDS_MAX)
        assert machine not in {None, victim.name}
        assert any(map(AFTER_A_FOLLOWER[moment], replicas(story, str(machine))))

    tell(disturb)


def test_a_wait_for_a_missing_moment_ends() -> None:
    async def disturb(story: ClusterStory) -> None:
        began = story.world.loop.time()
        assert await story.moments.next(Moment.ELECTED, 3.0) is None
        assert story.world.loop.time() == pytest.approx(began + 3.0)

    tell(disturb)


def test_a_machine_is_spared_while_another_one_may_have_lost_its_tail() -> None:
    async def disturb(story: ClusterStory) -> None:
        first, second, _ = story.names
        assert story.is_spare(first)
        assert story.is_spare(second)
        story.world.machine(first).cut_power()
        assert not story.is_spare(second)
        story.start(story.world.machine(first))
        await story.until(story.is_whole)
        assert story.is_spare(second)

    tell(disturb)
