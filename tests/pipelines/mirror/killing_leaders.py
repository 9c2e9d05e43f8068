"""Killing leaders with -9 on both sides of a mirror, while records are written and copied.

python -m tests.pipelines.mirror.killing_leaders --rounds 5            # without Spark
python -m tests.pipelines.mirror.killing_leaders --rounds 5 --spark    # `ottla mirror` itself
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ottla import Admin, TopicPartition
from ottla.testing import Cluster
from tests.pipelines.mirror.killing import PARTITIONS, TOPIC, Writer, check_all, kill, started
from tests.pipelines.mirror.mirroring import SETTINGS, Truth, records_by_partition

REPLICATED = SETTINGS | {"zookeeper.session.timeout.ms": "2000"}
PROGRESS = 300
"""The number of new offsets in the copy after a leader was killed."""
SECONDS_MAX = 120
GROUP = "readers"


class Reading:
    """A group on the source that commits repeatedly; the mirror translates its offsets."""

    def __init__(self, servers: str, dice: random.Random) -> None:
        self._servers = servers
        self._dice = dice
        self.offsets: dict[TopicPartition, int] = {}

    def commit(self) -> None:
        """Advance to a random offset of the source, or to its end."""
        names = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        with Admin(bootstrap_servers=self._servers) as admin:
            self.offsets = {
                name: self._dice.randint(self.offsets.get(name, start), end)
                for name, (start, end) in admin.offsets.ends(names).items()
            }
            admin.groups.commit(GROUP, self.offsets)


def kill_leader(cluster: Cluster, number: int) -> int:
    """Kill the leader of a partition; return its broker id."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        leader = admin.topics.describe(TOPIC)[TOPIC].partitions[number].leader
    cluster.brokers[leader].kill()
    return leader


def copied(cluster: Cluster) -> list[int]:
    """Return the end offsets of the copy's partitions."""
    names = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        ends = admin.offsets.ends(names)
    return [ends[name][1] for name in names]


def wait_for_progress(target: Cluster) -> None:
    """Return when every partition of the copy has grown."""
    wanted = [end + PROGRESS for end in copied(target)]
    deadline = time.monotonic() + SECONDS_MAX
    while any(end < least for end, least in zip(copied(target), wanted, strict=True)):
        assert time.monotonic() < deadline, "the mirror does not go on"
        time.sleep(0.1)


def one_kill(side: Cluster, target: Cluster, number: int) -> None:
    """Kill a leader, check that the mirror works without it, and restart it."""
    leader = kill_leader(side, number)
    wait_for_progress(target)
    side.brokers[leader].start()
    side.wait_until_ready()


def rounds_of_killing(rounds: int, seed: int, folder: Path, *, is_spark: bool) -> int:
    """Kill this many leaders on each side; return how many records were copied exactly once."""
    dice = random.Random(seed)
    with (
        Cluster(3, REPLICATED, data_dir=folder / "source", zookeeper=True) as source,
        Cluster(
            3,
            REPLICATED,
            data_dir=folder / "target",
            zookeeper_connect=f"{source.zookeeper_connect}/target",
        ) as target,
    ):
        servers = source.bootstrap_servers, target.bootstrap_servers
        with Admin(bootstrap_servers=servers[0]) as admin:
            admin.topics.create(TOPIC, partitions=PARTITIONS)
        writer, reading = Writer(servers[0], seed), Reading(servers[0], dice)
        writer.start()
        process = started(*servers, str(folder / "checkpoint"), is_spark=is_spark)
        try:
            wait_for_progress(target)
            for number in range(rounds):
                one_kill(source, target, number % PARTITIONS)
                reading.commit()
                one_kill(target, target, number % PARTITIONS)
            assert process.poll() is None, "the mirror has ended"
        finally:
            kill(process)
            writer.end()
        reading.commit()
        count = check_all(*servers)
        check_group(*servers, reading.offsets)
        return count


def check_group(source: str, target: str, offsets: dict[TopicPartition, int]) -> None:
    """Check that the group continues at the same records."""
    here, there = records_by_partition(source, TOPIC), records_by_partition(target, TOPIC)
    with Admin(bootstrap_servers=target) as admin:
        found = {name: row.offset for name, row in admin.groups.committed(GROUP).items()}
    assert found == {
        name: Truth(here[name.partition], there[name.partition]).translate(offset)
        for name, offset in offsets.items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--spark", action="store_true")
    asked = parser.parse_args(arguments)
    sys.stdout.write(f"seed {asked.seed}\n")
    with tempfile.TemporaryDirectory() as folder:
        count = rounds_of_killing(asked.rounds, asked.seed, Path(folder), is_spark=asked.spark)
    sys.stdout.write(
        f"{2 * asked.rounds} leaders were killed, {count:,} records arrived once each\n"
    )


if __name__ == "__main__":
    main()
