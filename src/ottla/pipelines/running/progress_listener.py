"""Writes Spark's progress reports of queries to a file."""

import json
import threading
from dataclasses import asdict
from pathlib import Path

from ottla.pipelines.running.folders import write_json
from ottla.pipelines.running.progress import FlowProgress
from ottla.pipelines.spark.jvm_listener import JvmListener


class ProgressFile(JvmListener):
    """Writes the progress of a session's queries after every report."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._progress_by_query: dict[str, FlowProgress] = {}
        self._lock = threading.Lock()
        write_json(path, [])

    def progress(self) -> list[FlowProgress]:
        """Return the progress of the flows."""
        with self._lock:
            return list(self._progress_by_query.values())

    def progressed(self, progress_json: str) -> None:
        """Write the new progress."""
        said = json.loads(progress_json)
        with self._lock:
            before = self._progress_by_query.get(said["id"])
            self._progress_by_query[said["id"]] = FlowProgress.of(said, before)
            flows = [asdict(flow) for flow in self._progress_by_query.values()]
            write_json(self._path, flows)
