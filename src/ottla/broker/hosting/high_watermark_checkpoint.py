"""Checkpoints the high watermarks on every disk: Kafka's `replication-offset-checkpoint`.

A restarted broker serves its readers up to them at once, and gets the rest from the leaders.
"""

import asyncio
from concurrent.futures import Executor

from ottla.broker.hosting.hosted_partitions import Partitions
from ottla.model.identifiers import TopicPartition
from ottla.storage.log_dirs.log_dir import LogDir
from ottla.storage.log_dirs.log_dirs import LogDirs


class HighWatermarks:
    """Writes high watermarks to the checkpoints, and returns those from the last run."""

    def __init__(self, partitions: Partitions, log_dirs: LogDirs, threads: Executor) -> None:
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._threads = threads

    def noted(self, name: TopicPartition) -> int:
        """Return the high watermark in the checkpoint; 0 if there is none."""
        folder = self._log_dirs.dir_of(name)
        return 0 if folder is None else folder.high_watermarks.get(name, 0)

    async def checkpoint(self) -> None:
        """Write all checkpoints, on a thread."""
        loop = asyncio.get_running_loop()
        for folder in self._log_dirs.online:
            write = folder.note_high_watermarks(self._of(folder))
            if write is not None:
                try:
                    await loop.run_in_executor(self._threads, write)
                except OSError as error:
                    folder.refuse(error)

    def close(self) -> None:
        """Write all checkpoints for the last time; blocks."""
        for folder in self._log_dirs.online:
            write = folder.note_high_watermarks(self._of(folder))
            if write is not None:
                try:
                    write()
                except OSError as error:
                    folder.refuse(error)

    def _of(self, folder: LogDir) -> dict[TopicPartition, int]:
        """Return the high watermarks; for a log without a role yet, the one in the checkpoint."""
        here = ((name, self._partitions.find(name)) for name in folder.hosted)
        known = {name: one.high_watermark for name, one in here if one is not None}
        noted = folder.high_watermarks
        return {name: noted[name] for name in folder.hosted if name in noted} | known
