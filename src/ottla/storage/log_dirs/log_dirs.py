"""The log dirs of a broker, one per disk. A broker holds the lock on the `.lock` file of each.

    data-1/  meta.properties  .kafka_cleanshutdown  recovery-point-offset-checkpoint  …
             orders-0/  orders-3/  payments-1/
    data-2/  meta.properties  …
             orders-1/  orders-2/

A new partition goes to the log dir with the fewest partitions. A log dir with a failed disk takes
only its own partitions offline. A full disk has not failed: it refuses operations that need space.
"""

import errno
import posixpath
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from typing import Final

from ottla.environment.disk import Disk, File
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.topic_config import TopicConfig
from ottla.storage.files.checkpoints import (
    META_PROPERTIES_FILE,
    CorruptCheckpointError,
    read_meta_properties,
)
from ottla.storage.files.directory_names import LOCK_FILE
from ottla.storage.files.open_files import OPEN_FILES_MAX, OpenFiles
from ottla.storage.log.leader_epochs import NO_EPOCH
from ottla.storage.log.log import PartitionLog
from ottla.storage.log.offline_on_error import is_full, is_refusal
from ottla.storage.log_dirs.bulk_creation import NewLog, make_logs, place_logs
from ottla.storage.log_dirs.log_dir import ConfigOf, IsStray, LogDir

FREE_BYTES_MIN: Final = 64 << 20
"""Free space at which a full log dir counts as usable again, on a disk of any size."""
FREE_SHARE_MIN: Final = 100
"""On a small disk one part in so many is enough."""
PROBE_BYTES: Final = 64 << 10
PROBE_FILE: Final = ".ottla_room"
_PROBE: Final = bytes(PROBE_BYTES)


class LogDirInUseError(OSError):
    """Another process uses a log dir; the only argument is a sentence that names it."""


def lock_log_dir(disk: Disk, path: str) -> File:
    """Lock a log dir, created if missing, until the file is closed or the process ends.

    Raises LogDirInUseError if it is locked, and OSError if its disk, or the text in its
    meta.properties, cannot be used.
    """
    if not disk.exists(path):
        disk.make_directory(path)
        disk.sync_directory(posixpath.dirname(path) or ".")
    try:
        lock = disk.lock_file(posixpath.join(path, LOCK_FILE))
    except BlockingIOError:
        raise LogDirInUseError(
            f"{path} is in use by another broker: stop that broker or choose another log dir"
        ) from None
    try:
        read_meta_properties(disk, posixpath.join(path, META_PROPERTIES_FILE))
    except CorruptCheckpointError as error:
        lock.close()
        # As for an unreadable file: the disk is suspect, and the other log dirs can serve.
        raise OSError(errno.EBADMSG, str(error)) from error
    except OSError:
        lock.close()
        raise
    return lock


def has_room(disk: Disk, path: str) -> bool:
    """Return whether a log dir takes writes again. Blocks; `OSError` if it has failed.

    A margin keeps a disk with a few free kilobytes from alternating between full and not full.
    The free space alone is not enough: quotas and reserved blocks refuse writes before it is 0.
    """
    wanted_bytes = min(FREE_BYTES_MIN, disk.total_bytes(path) // FREE_SHARE_MIN)
    if disk.free_bytes(path) < max(wanted_bytes, PROBE_BYTES):
        return False
    probe = posixpath.join(path, PROBE_FILE)
    try:
        try:
            with closing(disk.create_file(probe)) as file:
                file.write_at(0, _PROBE)
        finally:
            if disk.exists(probe):
                disk.remove(probe)
    except OSError as error:
        if is_full(error):
            return False
        raise
    return True


class UnusableLogDirError(OSError):
    """A broker cannot start without a log dir; the only argument is a sentence with the reason."""


class LogDirs:
    """All log dirs of a broker, and the logs in them."""

    def __init__(
        self,
        disk: Disk,
        paths: Iterable[str],
        *,
        open_files_max: int = OPEN_FILES_MAX,
        guard: AbstractContextManager[object] | None = None,
    ) -> None:
        files = OpenFiles(disk, open_files_max)
        self.dirs = [LogDir(files, path, guard) for path in paths]
        assert self.dirs, "a broker needs a directory for its logs"

    def lock(self) -> ExitStack:
        """Lock the log dirs until the stack is closed or the process ends; call this first.

        A log dir with a failed disk goes offline, if others work. Raises LogDirInUseError, without
        holding any lock, if another process has locked one; OSError if a disk is full; and
        UnusableLogDirError if all have failed.
        """
        with ExitStack() as locks:
            for log_dir in self.dirs:
                locks.enter_context(_locked(log_dir))
            self._check_any_is_online()
            return locks.pop_all()

    def fail(self, path: str, failure: OSError) -> None:
        """Take the log dir with this path offline; UnusableLogDirError if it was the last."""
        for log_dir in self.dirs:
            if log_dir.path == path:
                log_dir.fail(failure)
        self._check_any_is_online()

    def _check_any_is_online(self) -> None:
        if not self.online:
            told = "; ".join(f"{log_dir.path}: {log_dir.failure}" for log_dir in self.dirs)
            raise UnusableLogDirError(f"no log directory can be used: {told}")

    @property
    def online(self) -> list[LogDir]:
        """The log dirs with working disks."""
        return [log_dir for log_dir in self.dirs if log_dir.is_online]

    @property
    def online_paths(self) -> tuple[str, ...]:
        """Where they are."""
        return tuple(log_dir.path for log_dir in self.online)

    def open(self, config_of: ConfigOf, now_ms: int, is_stray: IsStray = lambda *_: False) -> None:
        """Open every log in every online log dir; strays are set aside."""
        for log_dir in self.online:
            log_dir.open(config_of, now_ms, is_stray)

    def close(self, now_ms: int, broker_epoch: int) -> None:
        """Close every log in every online log dir."""
        for log_dir in self.dirs:
            log_dir.close(now_ms, broker_epoch)

    def dir_of(self, partition: TopicPartition) -> LogDir | None:
        """Return the log dir with this partition, online or not."""
        return next((log_dir for log_dir in self.dirs if partition in log_dir.hosted), None)

    def log_of(self, partition: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition that is kept here."""
        log_dir = self.dir_of(partition)
        return None if log_dir is None else log_dir.hosted[partition].log

    def create(
        self, partition: TopicPartition, topic_id: bytes, config: TopicConfig, now_ms: int
    ) -> PartitionLog:
        """Create one empty log, as `new_logs` does for many. ApiError KAFKA_STORAGE_ERROR."""
        wanted = NewLog(partition, topic_id, config, NO_EPOCH)
        (made,) = make_logs(place_logs(self.dirs, [wanted]), now_ms)
        return made.host()

    def checkpoint(self) -> None:
        """Write the checkpoints of every online log dir."""
        for log_dir in self.online:
            try:
                log_dir.checkpoint()
            except OSError as error:
                log_dir.refuse(error)


def _locked(log_dir: LogDir) -> AbstractContextManager[object]:
    """Lock one log dir; a disk that fails takes it offline."""
    try:
        return closing(lock_log_dir(log_dir.open_files.disk, log_dir.path))
    except OSError as error:
        if isinstance(error, LogDirInUseError) or is_refusal(error):
            raise
        log_dir.fail(error)
        return nullcontext()
