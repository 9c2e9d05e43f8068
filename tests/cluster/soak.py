"""Brokers die, pause, stop, are cut off or lose their disk, one after another, for many rounds.

python -m tests.cluster.soak --rounds 100 [--zookeeper] [--ours]

Three processes, each a broker and a controller of the quorum, or three brokers and a real
ZooKeeper, under load from librdkafka, or from Ottla's clients. The faults and their brokers are
drawn from a seed; the timing depends on the machine. If records are lost, the directory with all
logs is kept.
"""

import argparse
import re
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from ottla.testing.cluster import Cluster
from tests.cluster.load import say
from tests.cluster.network import Network, use_gates
from tests.cluster.our_stories import told_by_ours
from tests.cluster.stories import ROLES, Fault, Story, cut_by, kill, pause, stop, told, wipe
from tests.cluster.watching import BROKERS, Watcher, settings_of

FAULTS_PER_ROUND_MAX = 3
_ACTIVE = re.compile(r"this node is the active controller, epoch (\d+)")
Telling = Callable[[str, Cluster, Watcher], AbstractContextManager[Story]]


def run_rounds(folder: Path, rounds: int, seed: int, tell: Telling, *, zookeeper: bool) -> int:
    """Run this many rounds; return the number of acknowledged records, none of them lost."""
    dice = Random(seed)
    cluster = Cluster(
        BROKERS, settings_of(zookeeper=zookeeper), data_dir=folder, zookeeper=zookeeper
    )
    with Network() as network:
        use_gates(cluster, network)
        faults = (kill, pause, stop, wipe, cut_by(network))
        with cluster:
            watcher = Watcher(cluster)
            acknowledged = [
                run_round(number, dice, faults, tell(f"round-{number}", cluster, watcher))
                for number in range(rounds)
            ]
            watcher.close()
    if not zookeeper:
        assert_one_leader_in_each_epoch(folder)
    return sum(acknowledged)


def run_round(
    number: int, dice: Random, faults: Sequence[Fault], telling: AbstractContextManager[Story]
) -> int:
    with telling as story:
        for _ in range(dice.randrange(1, FAULTS_PER_ROUND_MAX + 1)):
            fault, role = dice.choice(faults), dice.choice(ROLES)
            say(f"round {number}: {fault.__name__} the {role}")
            fault(story, role)
    return len(story.load.acknowledged)


def assert_one_leader_in_each_epoch(folder: Path) -> None:
    """Read the logs of all nodes: no epoch of the quorum had two active controllers."""
    nodes_by_epoch: dict[int, set[str]] = {}
    for log in folder.glob("broker-*.log"):
        for epoch in _ACTIVE.findall(log.read_text()):
            nodes_by_epoch.setdefault(int(epoch), set()).add(log.name)
    assert nodes_by_epoch, "no log has an active controller"
    twice = {epoch: nodes for epoch, nodes in nodes_by_epoch.items() if len(nodes) > 1}
    assert not twice, twice
    say(f"{len(nodes_by_epoch)} epochs with an active controller, each with one")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--zookeeper", action="store_true")
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = time.time_ns() if options.seed is None else options.seed
    folder = Path(mkdtemp(prefix="ottla-soak-"))
    say(f"seed {seed}, in {folder}")
    tell = told_by_ours if options.ours else told
    acknowledged = run_rounds(folder, options.rounds, seed, tell, zookeeper=options.zookeeper)
    shutil.rmtree(folder)
    say(f"{options.rounds} rounds (seed {seed}): {acknowledged} acknowledged, none lost or doubled")


if __name__ == "__main__":
    main()
