"""Notes on every disk up to where its logs are committed: Kafka's `replication-offset-checkpoint`.

A broker that starts again shows its readers that much at once, and asks the leaders for the rest.
"""

import asyncio
from concurrent.futures import Executor

from ottla.broker.hosting.hosted_partitions import Partitions
from ottla.model.identifiers import TopicPartition
from ottla.storage.log_dirs.log_dir import LogDir
from ottla.storage.log_dirs.log_dirs import LogDirs


class HighWatermarks:
    """Writes high watermarks, and returns those that were written before this start."""

    def __init__(self, partitions: Partitions, log_dirs: LogDirs, threads: Executor) -> None:
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._threads = threads

    def noted(self, name: TopicPartition) -> int:
        """Return up to where a log was committed when it was noted last; 0 if it never was."""
        folder = self._log_dirs.dir_of(name)
        return 0 if folder is None else folder.high_watermarks.get(name, 0)

    async def checkpoint(self) -> None:
        """Note all of them, in a thread."""
        loop = asyncio.get_running_loop()
        for folder in self._log_dirs.online:
            write = folder.note_high_watermarks(self._of(folder))
            if write is not None:
                try:
                    await loop.run_in_executor(self._threads, write)
                except OSError as error:
                    folder.refuse(error)

    def close(self) -> None:
        """Note them for the last time; blocks."""
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
