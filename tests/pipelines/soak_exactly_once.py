"""Kill all participants of an exactly-once write at random, and compare the records read.

python -m tests.pipelines.soak_exactly_once --rounds 20 --seed 1

Each round writes the lines of some files, one file a micro-batch, with drivers in processes of
their own. In a round on one broker, whole drivers or all of their Python workers are killed with
`kill -9` at random requests to the broker, or at their responses, and the next driver splits the
rows over another number of tasks. In every third round there are three brokers, and the leader of a
partition is killed and restarted while drivers write and die. At the end of each round, readers of
committed records must see every line once.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

from ottla import Admin
from ottla.testing import Cluster
from ottla.wire.api_key import ApiKey
from tests.pipelines.sink.lines import write_files
from tests.pipelines.sink.processes import kill_python_workers, kill_tree
from tests.pipelines.sink.reading import all_committed
from tests.pipelines.sink.tripwire import Tripwire, Wire

STARTS_MAX = 30
SECONDS_MAX = 300
"""For one driver."""
POINTS = (
    (ApiKey.PRODUCE, False),
    (ApiKey.PRODUCE, True),
    (ApiKey.INIT_PRODUCER_ID, None),
    (ApiKey.END_TXN, None),
)
"""The requests at which a process is killed, and whether they belong to the decision."""
ONE_BROKER = {
    "num.partitions": "3",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "3",
}
THREE_BROKERS = ONE_BROKER | {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
}


class Driver:
    """A driver in a process of its own."""

    def __init__(self, servers: str, folder: Path, topic: str, tasks: int) -> None:
        command = [sys.executable, "-m", "tests.pipelines.sink.lines"]
        with (folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, servers, str(folder), topic, str(tasks)], stdout=log, stderr=log
            )

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the whole tree."""
        kill_tree(self.process_id)

    def is_well(self, seconds_max: float = SECONDS_MAX) -> bool:
        """Wait for its end, and return whether it has written all lines."""
        try:
            return self._process.wait(seconds_max) == 0
        finally:
            self.kill()


def one_broker_round(dice: random.Random, folder: Path, lines: list[str], kills: int) -> str:
    """Kill at random requests, until the number of kills is reached and a driver ends well."""
    topic = f"topic-{uuid4()}"
    has_two_phases = dice.choice(["true", "false"])
    told = [f"two phases {has_two_phases}"]
    settings = ONE_BROKER | {"transaction.two.phase.commit.enable": has_two_phases}
    with Tripwire(settings) as tripwire:
        for start in range(STARTS_MAX):
            driver = Driver(tripwire.bootstrap_servers, folder, topic, dice.randint(1, 5))
            wire = random_wire(dice, driver) if start < kills else None
            if wire is not None:
                tripwire.stretch(wire)
            is_well = driver.is_well()
            if wire is not None and wire.is_tripped:
                told.append(str(wire))
            if is_well:
                break
        assert is_well, f"the query does not end: see {folder}"
        compare(tripwire.bootstrap_servers, topic, lines)
    return ", ".join(told)


def random_wire(dice: random.Random, driver: Driver) -> Wire:
    """Draw the process to kill, and the request at which it dies."""
    if dice.random() < 0.7:
        act = driver.kill
    else:

        def act() -> None:
            kill_python_workers(driver.process_id)

    api_key, is_decision = dice.choice(POINTS)
    is_after, count = dice.random() < 0.5, dice.randint(1, 6)
    return Wire(api_key, act, is_after=is_after, is_decision=is_decision, count=count)


def three_brokers_round(dice: random.Random, folder: Path, lines: list[str], kills: int) -> str:
    """Kill leaders while drivers write, and a driver, too."""
    topic = f"topic-{uuid4()}"
    told = []
    with Cluster(3, THREE_BROKERS, zookeeper=True) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.topics.create(topic, partitions=3, replication_factor=3)
        for start in range(STARTS_MAX):
            driver = Driver(cluster.bootstrap_servers, folder, topic, dice.randint(1, 5))
            if start < kills:
                told += kill_some(dice, cluster, topic, driver)
            is_well = driver.is_well()
            start_again(cluster)
            if is_well:
                break
        assert is_well, f"the query does not end: see {folder}"
        compare(cluster.bootstrap_servers, topic, lines)
    return ", ".join(told)


def kill_some(dice: random.Random, cluster: Cluster, topic: str, driver: Driver) -> list[str]:
    """Kill a leader when a task has begun to write, and perhaps the driver a little later."""
    wait_for_writing(cluster.bootstrap_servers, driver)
    killed = [kill_a_leader(dice, cluster, topic)]
    if dice.random() < 0.5:
        time.sleep(dice.random())
        driver.kill()
        killed.append("driver")
    return killed


def wait_for_writing(servers: str, driver: Driver) -> None:
    """Return when a task has begun to write, or the driver has ended."""
    with Admin(bootstrap_servers=servers) as admin:
        while driver.is_running:
            if any(each.state == "Ongoing" for each in admin.transactions.list()):
                return
            time.sleep(0.02)


def start_again(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        if not broker.is_running:
            broker.start()


def kill_a_leader(dice: random.Random, cluster: Cluster, topic: str) -> str:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        partition = dice.choice(admin.topics.describe(topic)[topic].partitions)
    broker = cluster.brokers.get(partition.leader)
    if broker is None:
        return "nobody led"
    broker.kill()
    return f"broker {partition.leader}"


def compare(servers: str, topic: str, lines: list[str]) -> None:
    found = sorted(all_committed(servers, topic))
    lost = sorted(set(lines) - set(found))
    assert not lost, f"{len(lost)} lost: {lost[:10]}"
    assert len(found) == len(lines), f"{len(found) - len(lines)} more than once"


def one_round(seed: int, *, kills: int = 3, rows: int = 2_000, is_cluster: bool) -> str:
    """Run one round, and return its kills; AssertionError if a line is lost or doubled."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="ottla-soak-") as name:
        folder = Path(name)
        lines = write_files(folder, batches=3, rows=rows)
        play = three_brokers_round if is_cluster else one_broker_round
        return play(dice, folder, lines, kills)


def main() -> None:
    """Run rounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    for number in range(arguments.rounds):
        seed = arguments.seed + number
        started = time.monotonic()
        killed = one_round(seed, is_cluster=number % 3 == 2)
        seconds = time.monotonic() - started
        print(f"seed {seed}: right in {seconds:.0f} s; killed: {killed}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
