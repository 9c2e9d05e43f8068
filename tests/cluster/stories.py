"""The common parts of stories about broker failures: a topic, a load, a group, and the count."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from ottla.testing.broker_process import BrokerProcess
from ottla.testing.cluster import Cluster
from tests.cluster.group_member import Member, wait_until_all_is_read
from tests.cluster.load import Load, say
from tests.cluster.metadata_views import NO_BROKER
from tests.cluster.network import ZOOKEEPER, Network
from tests.cluster.watching import Watcher

ASSIGNMENT = [[1, 2, 3], [2, 3, 1], [1, 3, 2], [2, 1, 3]]
"""Brokers 1 and 2 lead, 3 only follows."""
LEADER, FOLLOWER = 1, 3
ROLES = ("leader", "follower", "controller", "coordinator")
Fault: TypeAlias = Callable[["Story", str], None]
"""Does harm to the broker with a role, and waits until the cluster is whole again."""


@dataclass
class Story:
    """A writing load and a reading group member during a fault."""

    name: str
    cluster: Cluster
    watcher: Watcher
    load: Load
    members: Sequence[Member]

    def broker(self, role: str) -> BrokerProcess:
        """Return the broker that has this role now."""
        match role:
            case "leader":
                number = self.watcher.leader(self.name)
            case "follower":
                leaders = {self.watcher.leader(self.name, row) for row in range(len(ASSIGNMENT))}
                number = max(self.cluster.brokers.keys() - leaders, default=FOLLOWER)
            case "controller":
                self.watcher.wait_until(lambda: self.watcher.controller() != NO_BROKER)
                number = self.watcher.controller()
            case _:
                assert role == "coordinator"
                number = self.watcher.coordinator(self.name)
        return self.cluster.brokers[number]

    def without(self, broker: BrokerProcess) -> None:
        """Wait until other brokers have taken over a broker's roles."""
        self.watcher.wait_until(lambda: self.watcher.leads_nothing(broker.id))

    def whole_again(self) -> None:
        """Wait until all replicas are in sync, and every partition takes writes."""
        self.load.goes_on()
        self.watcher.wait_until_whole()
        self.load.goes_on()


def kill(story: Story, role: str) -> None:
    """Kill a broker (SIGKILL), wait for its replacement, and restart it."""
    victim = story.broker(role)
    victim.kill()
    story.without(victim)
    story.load.goes_on()
    victim.start()
    story.whole_again()


def pause(story: Story, role: str) -> None:
    """Pause a broker (SIGSTOP) until others have replaced it, and resume it."""
    victim = story.broker(role)
    victim.pause()
    story.without(victim)
    victim.resume()
    story.whole_again()


def stop(story: Story, role: str) -> None:
    """Stop a broker cleanly (SIGTERM), and restart it."""
    victim = story.broker(role)
    victim.stop()
    story.load.goes_on()
    victim.start()
    story.whole_again()


def wipe(story: Story, role: str) -> None:
    """Kill a broker, and restart it with an empty disk; a controller joins the quorum again."""
    victim = story.broker(role)
    victim.kill()
    shutil.rmtree(victim.data_dir)
    quorum = story.cluster.quorum
    if quorum is not None and victim.id in quorum.ports:
        quorum.format_to_join(victim.id)
    story.without(victim)
    victim.start()
    story.whole_again()


def cut_by(network: Network) -> Fault:
    """Return the fault that only clients reach a broker, for brokers behind gates."""

    def cut(story: Story, role: str) -> None:
        victim = story.broker(role)
        others = {ZOOKEEPER, *story.cluster.brokers} - {victim.id}
        ways = [(victim.id, other) for other in others]
        network.cut(*ways, *((other, here) for here, other in ways))
        story.without(victim)
        story.load.goes_on()
        network.mend()
        story.whole_again()

    return cut


@contextmanager
def told(
    name: str,
    cluster: Cluster,
    watcher: Watcher,
    *,
    member_count: int = 1,
    request_timeout_ms: int = 3_000,
) -> Iterator[Story]:
    """Write and read during the block, then count: no record is lost or doubled."""
    watcher.create_topic(name, ASSIGNMENT)
    servers = cluster.bootstrap_servers
    with ExitStack() as stack:
        members = [
            stack.enter_context(Member(servers, name, group=name)) for _ in range(member_count)
        ]
        with Load(servers, name, len(ASSIGNMENT), request_timeout_ms=request_timeout_ms) as load:
            watcher.wait_until(lambda: all(member.delivered for member in members))
            yield Story(name, cluster, watcher, load, members)
        wait_until_all_is_read(members, load.acknowledged)
    counted(load)
    failed = [failure for member in members for failure in member.failed]
    assert not failed, failed[:3]
    watcher.wait_until_replicas_are_equal(name, len(ASSIGNMENT))


def counted(load: Load) -> None:
    """Count the outcome of a load's records, and print it."""
    counts = load.counts()
    say(f"{load.topic}: {counts}; longest silence {load.longest_silence():.2f} s")
    assert counts.is_perfect, load.failed[:3]
