"""Run an exactly-once pipeline with executors in processes of their own, and kill some of them.

python -m tests.pipelines.soak_clusters --records 12000

Once on `local-cluster`, and once on a standalone master with two workers, both from PySpark. A
query adds up amounts by customer and window, with a shuffle and with state. After its first output,
one of its executors is killed with `kill -9`; after more output, the whole driver. The next driver
continues, and loses an executor, too. At the end, readers of committed records must see the result
of a plain Python model, each row once.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ottla import Admin
from ottla.clients.admin.admin_offsets import OffsetSpec
from ottla.testing import Broker
from tests.pipelines.clusters.standalone import Standalone
from tests.pipelines.clusters.windows import TARGET, create
from tests.pipelines.sink.processes import command_of, descendants, kill_tree
from tests.pipelines.sink.reading import all_committed, partitions_of, wait_for

SECONDS_MAX = 300
"""For one driver, and for each thing that is waited for."""
BATCHES = 20
"""How many micro-batches the records are read in, roughly."""
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.two.phase.commit.enable": "true",
}


class Round:
    """One query on one cluster, from its first driver to its last."""

    def __init__(self, servers: str, folder: Path, records: int, batches: int) -> None:
        self._servers = servers
        self._folder = folder
        self._records = records
        self._batch_records = records // batches
        self._driver: subprocess.Popen[bytes] | None = None
        self._expected = create(servers, records)
        self._killed: list[str] = []

    def start_driver(self, master: str) -> None:
        command = [sys.executable, "-m", "tests.pipelines.clusters.windows"]
        place = [self._servers, str(self._folder), str(self._batch_records)]
        environment = os.environ | {"TMPDIR": str(self._folder)}  # killed processes leave files
        with self._log.open("ab") as log:
            self._driver = subprocess.Popen(
                [*command, master, *place], stdout=log, stderr=log, env=environment
            )

    def kill_an_executor(self, worker_ids: Sequence[int]) -> None:
        """Kill an executor after more output; executors are below the driver or these processes."""
        rows = self._wait_for_more_rows()
        parents = (*worker_ids, self._running.pid)
        executors = [each for it in parents for each in descendants(it) if is_executor(each)]
        assert executors, "there are no executors"
        os.kill(executors[0], signal.SIGKILL)
        self._killed.append(f"1 of {len(executors)} executors at {rows} rows")

    def kill_driver(self) -> None:
        """Kill the driver with all its descendants as soon as more rows have been written."""
        rows = self._wait_for_more_rows()
        kill_tree(self._running.pid)
        self._running.wait()
        self._killed.append(f"the driver at {rows} rows")

    def end(self) -> None:
        """Wait until the query is done, and compare."""
        code = self._running.wait(SECONDS_MAX)
        assert code == 0, f"the driver failed: {self._log.read_text()[-4000:]}"
        found = Counter(all_committed(self._servers, TARGET))
        lost = sorted((Counter(self._expected) - found).elements())
        extra = sorted((found - Counter(self._expected)).elements())
        assert not lost, f"{len(lost)} rows are lost: {lost[:10]}; too many: {extra[:10]}"
        assert not extra, f"{len(extra)} rows are wrong or doubled: {extra[:10]}"

    def clean_up(self) -> None:
        """Kill any running driver."""
        if self._driver is not None and self._driver.poll() is None:
            kill_tree(self._driver.pid)
            self._driver.wait()

    @property
    def story(self) -> str:
        killed = ", ".join(self._killed)
        return f"{self._records} records, {len(self._expected)} rows, each once; killed: {killed}"

    @property
    def _log(self) -> Path:
        return self._folder / "driver.log"

    @property
    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._driver is not None
        return self._driver

    def _wait_for_more_rows(self) -> int:
        with Admin(bootstrap_servers=self._servers) as admin:
            before = committed_rows(admin)

            def is_more() -> bool:
                code = self._running.poll()
                assert code is None, f"it ended with {code}: {self._log.read_text()[-4000:]}"
                return committed_rows(admin) > before

            wait_for(is_more, "rows are written", SECONDS_MAX)
            return committed_rows(admin)


def committed_rows(admin: Admin) -> int:
    """Count the committed rows, including the markers of transactions."""
    ends = dict.fromkeys(partitions_of(admin, TARGET), OffsetSpec.LATEST)
    return sum(each.offset for each in admin.offsets.find(ends, is_committed_only=True).values())


def is_executor(process_id: int) -> bool:
    return EXECUTOR in command_of(process_id)


@contextmanager
def a_round(folder: Path, records: int, batches: int = BATCHES) -> Iterator[Round]:
    """Run a round with a broker of its own; at the end, wait for its query and compare."""
    with Broker(SETTINGS) as broker:
        play = Round(broker.bootstrap_servers, folder, records, batches)
        try:
            yield play
            play.end()
        finally:
            play.clean_up()


def kill_nothing(folder: Path, records: int) -> None:
    """Run the query on a local-cluster in a few micro-batches, and compare."""
    with a_round(folder, records, batches=3) as play:
        play.start_driver(LOCAL_CLUSTER)


def kill_all_kinds(folder: Path, records: int, master: str, worker_ids: Sequence[int] = ()) -> str:
    """Kill an executor, the driver and an executor of the next driver; return a description."""
    with a_round(folder, records) as play:
        play.start_driver(master)
        play.kill_an_executor(worker_ids)
        play.kill_driver()
        play.start_driver(master)
        play.kill_an_executor(worker_ids)
    return play.story


def on_local_cluster(folder: Path, records: int) -> str:
    return kill_all_kinds(folder, records, LOCAL_CLUSTER)


def on_standalone(folder: Path, records: int) -> str:
    with Standalone(folder / "standalone") as cluster:
        return kill_all_kinds(folder, records, cluster.master, cluster.process_ids)


PLAYS: dict[str, Callable[[Path, int], str]] = {
    LOCAL_CLUSTER: on_local_cluster,
    "standalone master, 2 workers": on_standalone,
}


def main() -> None:
    """Run one round on each kind of cluster."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=12_000)
    records = parser.parse_args().records
    for name, play in PLAYS.items():
        started = time.monotonic()
        with TemporaryDirectory(prefix="ottla-soak-") as folder:
            told = play(Path(folder), records)
        print(f"{name}: {told}; {time.monotonic() - started:.0f} s", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
