"""One broker after the other dies, sleeps, stops or loses its disk, for as long as you like.

    python -m tests.cluster.soak --rounds 100

Three processes and a real ZooKeeper, under load. Who it happens to, and what, is drawn from a seed;
when it happens is up to the machine. If something is lost, the folder with all logs is kept.
"""

import argparse
import shutil
import time
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from ottla.testing.cluster import Cluster
from tests.cluster.load import say
from tests.cluster.stories import ROLES, kill, pause, stop, told, wipe
from tests.cluster.watching import BROKERS, SETTINGS, Watcher

FAULTS = (kill, pause, stop, wipe)
FAULTS_PER_ROUND_MAX = 3


def run_rounds(folder: Path, rounds: int, seed: int) -> int:
    """Go through as many rounds; return how many records were acknowledged, and kept."""
    dice = Random(seed)
    with Cluster(BROKERS, SETTINGS, data_dir=folder) as cluster:
        watcher = Watcher(cluster)
        acknowledged = [run_round(number, dice, cluster, watcher) for number in range(rounds)]
        watcher.close()
    return sum(acknowledged)


def run_round(number: int, dice: Random, cluster: Cluster, watcher: Watcher) -> int:
    with told(f"round-{number}", cluster, watcher) as story:
        for _ in range(dice.randrange(1, FAULTS_PER_ROUND_MAX + 1)):
            fault, role = dice.choice(FAULTS), dice.choice(ROLES)
            say(f"round {number}: {fault.__name__} the {role}")
            fault(story, role)
    return len(story.load.acknowledged)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = time.time_ns() if options.seed is None else options.seed
    folder = Path(mkdtemp(prefix="ottla-soak-"))
    say(f"seed {seed}, in {folder}")
    acknowledged = run_rounds(folder, options.rounds, seed)
    shutil.rmtree(folder)
    say(f"{options.rounds} rounds (seed {seed}): {acknowledged} acknowledged, none lost or doubled")


if __name__ == "__main__":
    main()
