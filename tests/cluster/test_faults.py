"""Brokers die, pause and restart under load: no acknowledged record is lost or doubled."""

import pytest

from ottla.testing.cluster import Cluster
from tests.cluster.group_member import Member, wait_until_all_is_read
from tests.cluster.load import Load
from tests.cluster.stories import ASSIGNMENT, ROLES, kill, pause, told
from tests.cluster.watching import Watcher


@pytest.mark.parametrize("role", ROLES)
def test_nothing_is_lost_when_this_one_is_killed(
    role: str, cluster: Cluster, watcher: Watcher
) -> None:
    with told(f"killed-{role}", cluster, watcher) as story:
        kill(story, role)


@pytest.mark.parametrize("role", ROLES)
def test_nothing_is_lost_when_this_one_sleeps_and_wakes_up_in_another_world(
    role: str, cluster: Cluster, watcher: Watcher
) -> None:
    with told(f"paused-{role}", cluster, watcher) as story:
        pause(story, role)


def test_a_group_goes_on_where_it_was_when_its_coordinator_has_died(
    cluster: Cluster, watcher: Watcher
) -> None:
    name = "goes-on"
    with told(name, cluster, watcher) as story:
        story.load.goes_on()
    coordinator = story.broker("coordinator")
    coordinator.kill()
    story.without(coordinator)
    servers = cluster.bootstrap_servers
    with Member(servers, name, group=name) as successor:
        with Load(servers, name, len(ASSIGNMENT)) as more:
            pass
        wait_until_all_is_read([successor], more.acknowledged)
    (predecessor,) = story.members
    assert not successor.delivered.keys() & predecessor.delivered.keys()
