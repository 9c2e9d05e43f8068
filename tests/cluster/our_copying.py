"""Two of Ottla's copiers share a topic while copiers and brokers die; the copy is read as it grows.

python -m tests.cluster.our_copying --minutes 10

The faults are drawn from a seed. After a failure, the directory with all logs is kept.
"""

import argparse
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from ottla.broker.coordinators.consumer_offsets_topic import partition_of_group
from ottla.model.topic_names import TRANSACTION_STATE_TOPIC
from ottla.testing.child_process import ChildProcess, ClusterError, ProcessGroup
from ottla.testing.cluster import Cluster
from tests.cluster.committed_readers import by_librdkafka
from tests.cluster.copying import ASSIGNMENT, assert_same
from tests.cluster.load import WAIT_SECONDS_MAX, say
from tests.cluster.our_copier import FENCED, changed
from tests.cluster.our_ends import PARTITIONS, CommittedReader, Feeder, wait_until
from tests.cluster.watching import BROKERS, SETTINGS, TRANSACTIONS_PARTITIONS, Watcher

COPIERS = 2
STEP_RECORDS = 25
"""The minimum number of records per partition copied between two faults."""


class OurCopying:
    """Copies one topic to another with several copiers. Only a paused copier may exit by itself."""

    def __init__(self, servers: str, folder: Path, name: str) -> None:
        self.servers, self.name = servers, name
        self.source, self.target = names_of(name)
        self.happened: Counter[str] = Counter()
        self._sleepers: set[str] = set()
        self._processes = ProcessGroup()
        self.copiers = [
            ChildProcess(row, self._processes, folder / f"{row}.log")
            for row in (f"{name}-{number}" for number in range(COPIERS))
        ]
        for copier in self.copiers:
            self._start(copier)
        self.feeder = Feeder(servers, self.source)
        self.reader = CommittedReader(servers, self.target)

    def close(self) -> None:
        self._processes.close()
        self.feeder.close()
        self.reader.close()

    def goes_on(self) -> None:
        """Wait until more records of each partition are copied and read."""
        wanted = [len(values) + STEP_RECORDS for values in self.reader.values]
        rows = list(zip(self.reader.values, wanted, strict=True))
        wait_until(lambda: all(len(values) >= count for values, count in rows), self._look)

    def finish(self) -> None:
        """Wait for the end of the copy; any reader must find every record once, in order."""
        self.feeder.close()
        wait_until(lambda: self.reader.count >= self.feeder.count, self._look)
        for copier in self.copiers:
            self._stop(copier)
        self.happened["aborted"] = sum(_lines(one, "aborted") for one in self.copiers)
        wanted = [[changed(value) for value in values] for values in self.feeder.values]
        assert_same(by_librdkafka(self.servers, self.target, PARTITIONS), wanted)
        assert_same(self.reader.values, wanted)
        again = CommittedReader(self.servers, self.target)
        wait_until(lambda: again.count >= self.feeder.count, lambda: None)
        again.close()
        assert_same(again.values, wanted)

    def kill_copier(self, number: int) -> None:
        """Kill a copier in the middle of its work, and restart it after others have taken over."""
        copier = self.copiers[number]
        copier.kill()
        self.happened["copier killed"] += 1
        self.goes_on()
        self._start(copier)

    def pause_copier(self, number: int) -> None:
        """Pause a copier until its partitions are reassigned; it resumes in the old transaction."""
        copier = self.copiers[number]
        copier.pause()
        self._sleepers.add(copier.name)
        self.happened["copier paused"] += 1
        self.goes_on()
        copier.resume()

    def let_transactions_end(self) -> None:
        """Allow transactions to time out, before a fault that lasts longer than the timeout."""
        self._sleepers.update(copier.name for copier in self.copiers)

    def _start(self, copier: ChildProcess) -> None:
        program = (sys.executable, "-u", "-m", "tests.cluster.our_copier")
        names = (self.source, self.target, self.name, copier.name)
        copier.spawn((*program, self.servers, *names))

    def _stop(self, copier: ChildProcess) -> None:
        with suppress(ClusterError):
            copier.terminate(WAIT_SECONDS_MAX)
        fine = {0, FENCED} if copier.name in self._sleepers else {0}
        assert copier.exit_code in fine, copier.last_lines()

    def _look(self) -> None:
        """Restart a copier that was paused too long and got fenced; all others must be running."""
        for copier in self.copiers:
            if copier.exit_code == FENCED and copier.name in self._sleepers:
                self.happened["sleeper fenced"] += 1
                self._start(copier)
            assert copier.exit_code in {None, -signal.SIGKILL}, copier.last_lines()
        assert not self.feeder.failed + self.reader.failed, self.feeder.failed + self.reader.failed


@dataclass(frozen=True)
class Deaths:
    """The faults of the brokers during a copy."""

    copying: OurCopying
    watcher: Watcher
    cluster: Cluster

    def kill_group_coordinator(self) -> None:
        """Kill the coordinator of the copiers' group."""
        self._kill("group coordinator", self.watcher.coordinator(self.copying.name))

    def kill_transaction_coordinator(self, number: int) -> None:
        """Kill the coordinator of a copier's transactions."""
        name = self.copying.copiers[number].name
        index = partition_of_group(name, TRANSACTIONS_PARTITIONS)
        self._kill("transaction coordinator", self.watcher.leader(TRANSACTION_STATE_TOPIC, index))

    def kill_leader(self) -> None:
        """Kill the leader of a partition of the copy."""
        self._kill("leader", self.watcher.leader(self.copying.target))

    def _kill(self, role: str, number: int) -> None:
        victim = self.cluster.brokers[number]
        victim.kill()
        self.copying.happened[f"{role} killed"] += 1
        self.watcher.wait_until(lambda: self.watcher.leads_nothing(number))
        self.copying.goes_on()
        victim.start()
        self.watcher.wait_until_whole()


def names_of(name: str) -> tuple[str, str]:
    """Return the topics of a copy: its source and its target."""
    return f"{name}-in", f"{name}-out"


def _lines(copier: ChildProcess, beginning: str) -> int:
    return sum(line.startswith(beginning) for line in copier.log.read_text().splitlines())


@contextmanager
def copied_by_ours(servers: str, folder: Path, name: str) -> Iterator[OurCopying]:
    """Copy during the block and until the end, then check the copy."""
    copying = OurCopying(servers, folder, name)
    try:
        copying.goes_on()
        yield copying
        copying.finish()
    finally:
        copying.close()
    say(f"{copying.target}: {copying.reader.count} copied once; {dict(copying.happened)}")


@contextmanager
def copied_in_cluster(watcher: Watcher, cluster: Cluster, name: str) -> Iterator[Deaths]:
    """Run a copy with its own topics, in a cluster in which brokers may die."""
    for topic in names_of(name):
        watcher.create_topic(topic, ASSIGNMENT)
    with copied_by_ours(cluster.bootstrap_servers, cluster.data_dir, name) as copying:
        yield Deaths(copying, watcher, cluster)


def run(folder: Path, minutes: float, seed: int) -> None:
    """Inject one fault after another for this long."""
    dice = Random(seed)
    with Cluster(BROKERS, SETTINGS, data_dir=folder, zookeeper=True) as cluster:
        watcher = Watcher(cluster)
        deadline = time.monotonic() + 60 * minutes
        with copied_in_cluster(watcher, cluster, "ours-copier") as deaths:
            while time.monotonic() < deadline:
                happen(deaths, dice)
        watcher.close()


def happen(deaths: Deaths, dice: Random) -> None:
    """Inject a random fault into a random copier or broker."""
    number = dice.randrange(COPIERS)
    dice.choice(
        [
            deaths.kill_leader,
            deaths.kill_group_coordinator,
            partial(deaths.kill_transaction_coordinator, number),
            partial(deaths.copying.kill_copier, number),
            partial(deaths.copying.pause_copier, number),
        ]
    )()
    deaths.copying.goes_on()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = time.time_ns() if options.seed is None else options.seed
    folder = Path(mkdtemp(prefix="ottla-our-copying-"))
    say(f"seed {seed}, in {folder}")
    run(folder, options.minutes, seed)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
