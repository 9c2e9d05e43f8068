"""Clean stops of brokers do not interrupt clients."""

import time

from ottla.testing.broker_process import BrokerProcess
from ottla.testing.cluster import Cluster
from tests.cluster.load import say
from tests.cluster.stories import ASSIGNMENT, Story, told
from tests.cluster.watching import Watcher


def test_a_rolling_restart_fails_no_request(cluster: Cluster, watcher: Watcher) -> None:
    with told("rolling", cluster, watcher, member_count=2) as story:
        before = sum(member.assignments for member in story.members)
        for broker in cluster.brokers.values():
            silence = stopped(story, broker)
            say(f"broker {broker.id}: {1000 * silence:.0f} ms from SIGTERM to the next write")
            broker.start()
            watcher.wait_until_whole()
        story.load.goes_on()
        rebalances = sum(member.assignments for member in story.members) - before
    say(f"{rebalances} assignments, librdkafka noticed {dict(story.load.noticed)}")
    assert "_ALL_BROKERS_DOWN" not in story.load.noticed
    assert rebalances <= len(story.members)  # one may have been under way before


def stopped(story: Story, broker: BrokerProcess) -> float:
    """Stop a broker; return the seconds until all its partitions have acknowledged a new write."""
    watcher, load = story.watcher, story.load
    led = [row for row in range(len(ASSIGNMENT)) if watcher.leader(story.name, row) == broker.id]
    began = time.monotonic()
    broker.stop()
    assert watcher.leads_nothing(broker.id)
    load.goes_on()
    return max((load.seconds_to_next(began, row) for row in led), default=0.0)
