"""A standalone master of Spark and its workers, as real processes from PySpark's own files."""

import os
import re
import subprocess
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.pipelines.spark.java import find_java
from tests.pipelines.clusters.windows import JVM_OPTIONS
from tests.pipelines.sink.processes import kill_tree
from tests.pipelines.sink.reading import wait_for

DEPLOY = "org.apache.spark.deploy"
MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
START_SECONDS_MAX = 240
"""A machine that is busy with other tests gives three JVMs little time."""
END_SECONDS_MAX = 240


class Standalone:
    """A master and workers of one core each on loopback, with all their files in a directory."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        folder.mkdir()
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._worker_count = workers
        self.master = ""

    def __enter__(self) -> Self:
        try:
            self._start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def process_ids(self) -> list[int]:
        """The master and its workers; executors are children of the latter."""
        return [process.pid for process in self._processes]

    def stop(self) -> None:
        """End them, workers first; kill processes that do not end in time, with their executors."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(END_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                kill_tree(process.pid)
                process.wait()
        self._processes.clear()

    def _start_all(self) -> None:
        self._start("master", "master.Master")
        wait_for(
            lambda: MASTER_URL.search(self._log("master")) is not None,
            "a master",
            START_SECONDS_MAX,
        )
        found = MASTER_URL.search(self._log("master"))
        assert found is not None
        self.master = found[1]
        for number in range(self._worker_count):
            name = f"worker-{number}"
            place = ["--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / name)]
            self._start(name, "worker.Worker", *place, self.master)
        for number in range(self._worker_count):
            log = f"worker-{number}"
            wait_for(partial(self._is_registered, log), log, START_SECONDS_MAX)

    def _is_registered(self, log: str) -> bool:
        return "Successfully registered" in self._log(log)

    def _start(self, name: str, program: str, *arguments: str) -> None:
        import pyspark  # noqa: PLC0415

        home = Path(pyspark.__file__).parent
        java = find_java().home
        environment = os.environ | {
            "JAVA_HOME": str(java),
            "SPARK_DAEMON_JAVA_OPTS": JVM_OPTIONS,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        ours = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        command = [str(home / "bin" / "spark-class"), f"{DEPLOY}.{program}", *ours, *arguments]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, env=environment)
            )

    def _log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")
