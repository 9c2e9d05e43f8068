"""Brokers die, pause, stop or lose their disk, one after another, for a given number of rounds.

python -m tests.cluster.soak --rounds 100 [--ours]

Three processes and a real ZooKeeper, under load from librdkafka, or from Ottla's clients. The
faults and their brokers are drawn from a seed; the timing depends on the machine. If records are
lost, the directory with all logs is kept.
"""

import argparse
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from ottla.testing.cluster import Cluster
from tests.cluster.load import say
from tests.cluster.our_stories import told_by_ours
from tests.cluster.stories import ROLES, Story, kill, pause, stop, told, wipe
from tests.cluster.watching import BROKERS, SETTINGS, Watcher

FAULTS = (kill, pause, stop, wipe)
FAULTS_PER_ROUND_MAX = 3
Telling = Callable[[str, Cluster, Watcher], AbstractContextManager[Story]]


def run_rounds(folder: Path, rounds: int, seed: int, tell: Telling) -> int:
    """Run this many rounds; return the number of acknowledged records, none of them lost."""
    dice = Random(seed)
    with Cluster(BROKERS, SETTINGS, data_dir=folder, zookeeper=True) as cluster:
        watcher = Watcher(cluster)
        acknowledged = [
            run_round(number, dice, tell(f"round-{number}", cluster, watcher))
            for number in range(rounds)
        ]
        watcher.close()
    return sum(acknowledged)


def run_round(number: int, dice: Random, telling: AbstractContextManager[Story]) -> int:
    with telling as story:
        for _ in range(dice.randrange(1, FAULTS_PER_ROUND_MAX + 1)):
            fault, role = dice.choice(FAULTS), dice.choice(ROLES)
            say(f"round {number}: {fault.__name__} the {role}")
            fault(story, role)
    return len(story.load.acknowledged)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = time.time_ns() if options.seed is None else options.seed
    folder = Path(mkdtemp(prefix="ottla-soak-"))
    say(f"seed {seed}, in {folder}")
    tell = told_by_ours if options.ours else told
    acknowledged = run_rounds(folder, options.rounds, seed, tell)
    shutil.rmtree(folder)
    say(f"{options.rounds} rounds (seed {seed}): {acknowledged} acknowledged, none lost or doubled")


if __name__ == "__main__":
    main()
