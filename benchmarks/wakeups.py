"""Wake-ups of waiting fetches by one append, in clusters of several sizes.

Each follower waits with one fetch at the leader, as in an idle cluster. A partition has two
followers, or one if there is one. The figure is how many fetches an append wakes.
"""

import asyncio
from collections.abc import Iterator
from tempfile import TemporaryDirectory

from benchmarks.comparison import Case, Unit
from benchmarks.storage import NOW_MS, batch_of, new_log
from ottla.concurrency.notifier import Notifier
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.topic_config import TopicConfig
from ottla.replication.in_sync import Assignment, log_end_key
from ottla.replication.partition import Partition
from ottla.runtime.clock import SystemClock

TITLE = "Followers that wait at a leader"
FOLLOWERS = (1, 50, 200)
FOLLOWERS_OF_EACH = 2
APPENDS = 100
WAIT_MS = 600_000
WAKE_UPS = Unit("wake-ups", 1, is_time=True)


def cases() -> Iterator[Case]:
    """Yield the wake-ups of one append for each size of cluster."""
    for followers in FOLLOWERS:
        asked = min(followers, FOLLOWERS_OF_EACH)
        work = f"an append, {followers} followers wait, {asked} of them for this partition"
        figure = asyncio.run(wake_ups(followers))
        yield Case(work=work, unit=WAKE_UPS, ours=lambda: None, figures=(figure,), asked=asked)


async def wake_ups(followers: int) -> float:
    """Return how many waits an append ends, with this many followers."""
    clock = SystemClock()
    notifier = Notifier(clock)
    with TemporaryDirectory() as folder:
        partitions = [_led(folder, number, followers, notifier) for number in range(followers)]
        for number in range(APPENDS):
            waits = [
                asyncio.create_task(
                    notifier.wait_any([log_end_key(broker_id)], clock.monotonic_ms() + WAIT_MS)
                )
                for broker_id in range(1, followers + 1)
            ]
            await asyncio.sleep(0)  # all of them wait now
            partitions[number % followers].append_as_leader(memoryview(batch_of(100, 1)), NOW_MS)
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        for partition in partitions:
            partition.log.close(NOW_MS)
    return notifier.wake_up_count / APPENDS


def _led(folder: str, number: int, followers: int, notifier: Notifier) -> Partition:
    log = new_log(folder, f"wakeups-{number}", TopicConfig())
    partition = Partition(TopicPartition("wakeups", number), bytes(16), log, notifier.notify)
    here = min(followers, FOLLOWERS_OF_EACH)
    replicas = (0, *(1 + (number + step) % followers for step in range(here)))
    partition.lead(0, Assignment(0, replicas, replicas, 0))
    return partition
