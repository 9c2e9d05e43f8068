"""A topic is copied by one process after another, while copiers and brokers die.

python -m tests.cluster.copying --records 100000 [--zookeeper]

The source was written in transactions, some of them aborted. At the end, three client libraries
read the copy. After a failure, the directory with all logs is kept.
"""

import argparse
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from confluent_kafka import Producer

from ottla.broker.coordinators.consumer_offsets_topic import partition_of_group
from ottla.model.topic_names import TRANSACTION_STATE_TOPIC
from ottla.testing.child_process import ChildProcess, ProcessGroup
from ottla.testing.cluster import Cluster
from tests.cluster.committed_readers import READERS, Found
from tests.cluster.copier import COPIERS, FENCED, changed
from tests.cluster.load import WAIT_SECONDS_MAX, say
from tests.cluster.watching import BROKERS, TRANSACTIONS_PARTITIONS, Watcher, settings_of

ASSIGNMENT: Final = [[1, 2, 3], [2, 3, 1], [3, 1, 2], [2, 1, 3]]
PARTITIONS: Final = len(ASSIGNMENT)
INPUT_RECORDS: Final = 500
"""The records of one transaction of the input."""
ABORTED_EVERY: Final = 5
STEP_RECORDS: Final = 100
"""The minimum number of records copied between two faults."""
STUCK_SECONDS: Final = 120
"""After that a copier is replaced: aiokafka may ask a coordinator that is gone (its issue 1145)."""


class Copying:
    """Copies one topic to another. A copier that exits before the end is replaced."""

    def __init__(self, watcher: Watcher, cluster: Cluster, library: str, records: int) -> None:
        self._watcher = watcher
        self._cluster = cluster
        self._library = library
        self._records = records
        self._name = f"copier-{library.lower()}"
        self.source, self.target = f"{self._name}-in", f"{self._name}-out"
        self._processes = ProcessGroup()
        self._copiers: list[ChildProcess] = []
        self.happened: Counter[str] = Counter()
        """The faults so far, with their counts."""

    def prepare(self) -> None:
        """Write the source topic, and start the copier."""
        for topic in (self.source, self.target):
            self._watcher.create_topic(topic, ASSIGNMENT)
        write_input(self._cluster.bootstrap_servers, self.source, self._records)
        self._start()

    def close(self) -> None:
        self._processes.close()

    @property
    def is_done(self) -> bool:
        return self._copiers[-1].exit_code == 0

    def goes_on(self) -> bool:
        """Wait until more records are copied; return False at the end of the input."""
        wanted = self._copied() + STEP_RECORDS
        self._wait_until(lambda: self.is_done or self._copied() >= wanted)
        return not self.is_done

    def finish(self) -> None:
        """Wait for the end of the copy; any reader must find every record once, in order."""
        self._wait_until(lambda: self.is_done)
        wanted = [[changed(value) for value in values] for values in input_values(self._records)]
        for read in READERS:
            assert_same(read(self._cluster.bootstrap_servers, self.target, PARTITIONS), wanted)

    # -- faults ---------------------------------------------------------------------------------

    def kill_copier(self) -> None:
        """Kill the copier at an arbitrary point, and start its successor."""
        self._copiers[-1].kill()
        self.happened["copier killed"] += 1
        self._start()

    def wake_zombie(self) -> None:
        """Pause a copier, let another take over, and resume the first: it is fenced."""
        zombie = self._copiers[-1]
        if not zombie.is_running:
            return
        zombie.pause()
        self._start()
        self.goes_on()
        zombie.resume()
        self._watcher.wait_until(lambda: not zombie.is_running)
        if zombie.exit_code:  # else it slept when all was done
            assert zombie.exit_code == FENCED, zombie.last_lines()
            self.happened["zombie fenced"] += 1

    def kill_leader(self) -> None:
        """Kill the leader of a partition of the output."""
        self._kill_broker("leader", self._watcher.leader(self.target))

    def kill_group_coordinator(self) -> None:
        """Kill the coordinator of the copier's group."""
        self._kill_broker("group coordinator", self._watcher.coordinator(self._name))

    def kill_transaction_coordinator(self) -> None:
        """Kill the coordinator of the copier's transactions."""
        index = partition_of_group(self._name, TRANSACTIONS_PARTITIONS)
        leader = self._watcher.leader(TRANSACTION_STATE_TOPIC, index)
        self._kill_broker("transaction coordinator", leader)

    def _kill_broker(self, role: str, number: int) -> None:
        victim = self._cluster.brokers[number]
        victim.kill()
        self.happened[f"{role} killed"] += 1
        self._watcher.wait_until(lambda: self._watcher.leads_nothing(number))
        self.goes_on()
        victim.start()
        self._watcher.wait_until_whole()

    # -- copiers --------------------------------------------------------------------------------

    def _start(self) -> None:
        number = len(self._copiers)
        log = self._cluster.data_dir / f"{self._name}-{number}.log"
        copier = ChildProcess(f"{self._name} {number}", self._processes, log)
        arguments = (self._cluster.bootstrap_servers, self.source, self.target, self._name)
        program = (sys.executable, "-u", "-m", "tests.cluster.copier")
        copier.spawn((*program, self._library, *arguments))
        self._copiers.append(copier)

    def _copied(self) -> int:
        return sum(_last_count(copier.log) for copier in self._copiers)

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait while the copy makes progress; start a successor when the copier has died."""
        copied, moved_at, is_replaced = -1, time.monotonic(), False
        while not is_so():
            copier = self._copiers[-1]
            if not copier.is_running:
                say(f"{copier.name} ended with {copier.exit_code}: {copier.last_lines()}")
                self.happened["copier ended by itself"] += 1
                self._start()
            if self._copied() > copied:
                copied, moved_at, is_replaced = self._copied(), time.monotonic(), False
            elif not is_replaced and time.monotonic() - moved_at > STUCK_SECONDS:
                is_replaced = True
                self._replace_stuck()
            assert time.monotonic() - moved_at < WAIT_SECONDS_MAX, copier.last_lines()
            time.sleep(0.02)

    def _replace_stuck(self) -> None:
        say(f"{self._copiers[-1].name} is stuck")
        self._copiers[-1].kill()
        self.happened["copier stuck"] += 1
        self._start()


def _last_count(log: Path) -> int:
    counts = (line for line in log.read_text().splitlines() if line.isdigit())
    return max(map(int, counts), default=0)


def input_values(records: int) -> list[list[bytes]]:
    """Return the committed values of each partition of the input."""
    return [
        [b"%d of partition %d" % (number, index) for number in range(records // PARTITIONS)]
        for index in range(PARTITIONS)
    ]


def write_input(servers: str, topic: str, records: int) -> None:
    """Write the committed input, interleaved with aborted transactions."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(WAIT_SECONDS_MAX)
    columns = zip(*input_values(records), strict=True)
    rows = [row for column in columns for row in enumerate(column)]
    for begin in range(0, len(rows), INPUT_RECORDS):
        if begin // INPUT_RECORDS % ABORTED_EVERY == 0:
            producer.begin_transaction()
            for index in range(PARTITIONS):
                producer.produce(topic, b"never written", partition=index)
            producer.flush(WAIT_SECONDS_MAX)
            producer.abort_transaction(WAIT_SECONDS_MAX)
        producer.begin_transaction()
        for index, value in rows[begin : begin + INPUT_RECORDS]:
            producer.produce(topic, value, partition=index)
        producer.commit_transaction(WAIT_SECONDS_MAX)


def assert_same(found: Found, wanted: Found) -> None:
    """Fail with the first difference between a copy and the expected values."""
    for index, (values, expected) in enumerate(zip(found, wanted, strict=True)):
        pairs = zip(values, expected, strict=False)
        differing = next((pair for pair in pairs if pair[0] != pair[1]), "in length")
        assert values == expected, f"partition {index} differs {differing}"


@contextmanager
def copied(watcher: Watcher, cluster: Cluster, library: str, records: int) -> Iterator[Copying]:
    """Copy this many records during the block and until the end, then check the copy."""
    copying = Copying(watcher, cluster, library, records)
    try:
        copying.prepare()
        yield copying
        copying.finish()
    finally:
        copying.close()
    say(f"{copying.target}: {records} records copied once; {dict(copying.happened)}")


def run(folder: Path, library: str, records: int, *, zookeeper: bool) -> None:
    """Inject one fault after another until all is copied."""
    settings = settings_of(zookeeper=zookeeper)
    with Cluster(BROKERS, settings, data_dir=folder, zookeeper=zookeeper) as cluster:
        watcher = Watcher(cluster)
        with copied(watcher, cluster, library, records) as copying:
            deaths = cycle(
                (
                    copying.kill_copier,
                    copying.kill_transaction_coordinator,
                    copying.wake_zombie,
                    copying.kill_leader,
                    copying.kill_copier,
                    copying.kill_group_coordinator,
                )
            )
            while copying.goes_on():
                next(deaths)()
        watcher.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--zookeeper", action="store_true")
    parser.add_argument("--library", choices=COPIERS, default="Librdkafka")
    options = parser.parse_args()
    folder = Path(mkdtemp(prefix="ottla-copying-"))
    say(f"in {folder}")
    began = time.monotonic()
    run(folder, options.library, options.records, zookeeper=options.zookeeper)
    shutil.rmtree(folder)
    say(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
