"""One log directory of a broker, on one disk.

Once its disk has failed it is offline, with its own partitions and no others. A full disk has not
failed: only operations that need room are refused.

Marker files tell a clean shutdown, and survive an interrupted start:

    .kafka_cleanshutdown       every log was closed
    .ottla_opening             every log was closed, and a start has begun to open them
    orders-0/.ottla_unopened   the same for one log, which a full disk kept from being opened

A marker is removed before the first append to a log that it covers. An interrupted start may leave
indexes that are not durable, so the next start scans every segment. But if all logs were closed
before, missing offsets between segments are no data loss.
"""

import errno
import posixpath
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from functools import partial
from typing import Final, NamedTuple

from ottla.environment.disk import Disk
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import FIRST_OFFSET, ZERO_UUID, Offset, TopicPartition
from ottla.model.settings.topic_config import TopicConfig
from ottla.storage.compaction.compaction_plan import (
    FIRST_DIRTY_OFFSET_FILE,
    read_first_dirty_offsets,
)
from ottla.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    CorruptCheckpointError,
    OffsetCheckpoint,
    Write,
    read_clean_shutdown,
    read_offsets,
    read_topic_id,
    remove_durably,
    remove_tree,
    write_clean_shutdown,
    write_topic_id,
)
from ottla.storage.files.directory_names import (
    deleted_name,
    future_of,
    is_deleted,
    partition_of,
    stray_names,
)
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.log.leader_epochs import LEADER_EPOCH_FILE, LeaderEpochs
from ottla.storage.log.log import LogState, PartitionLog
from ottla.storage.log.offline_on_error import is_refusal
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.recovery.log_recovery import open_log
from ottla.storage.segments.segment import Segment

OPENING_FILE: Final = ".ottla_opening"
UNOPENED_FILE: Final = ".ottla_unopened"

ConfigOf = Callable[[str], TopicConfig]
IsStray = Callable[[TopicPartition, bytes | None], bool]
"""Returns whether a partition, with this topic id if it is known, belongs to no topic."""


def relocate(log: PartitionLog, directory: str) -> None:
    """Update the paths of a log and of all its files after a rename of its directory."""
    for segment in log.segments:
        old = segment.path
        segment.path = _below(directory, old)
        log.files.rename(old, segment.path)
        for index in segment.indexes:
            index.path = _below(directory, index.path)
    log.epochs.path = _below(directory, log.epochs.path)
    log.producers.snapshots.directory = directory
    log.directory = directory


def _below(directory: str, path: str) -> str:
    return posixpath.join(directory, posixpath.basename(path))


def begin_log(
    files: OpenFiles,
    directory: str,
    topic_id: bytes,
    config: TopicConfig,
    now_ms: int,
    on_recovery_point_lowered: Callable[[Offset], None],
) -> PartitionLog:
    """Begin a log in a directory that is not there yet; all but its name is durable then."""
    files.disk.make_directory(directory)
    path = posixpath.join(directory, PARTITION_METADATA_FILE)
    write_topic_id(files.disk, path, topic_id, sync_name=False)
    segment = Segment.create(files, directory, FIRST_OFFSET, config, now_ms)
    files.disk.sync_directory(directory)
    epochs = LeaderEpochs(files.disk, posixpath.join(directory, LEADER_EPOCH_FILE))
    producers = ProducerStates(files.disk, directory)
    state = LogState(
        [segment], epochs, producers, FIRST_OFFSET, FIRST_OFFSET, FIRST_OFFSET, is_durable=True
    )
    return PartitionLog(files, directory, config, state, on_recovery_point_lowered)


class LastStop(NamedTuple):
    """Whether all was closed and not touched since, and whether nothing was appended since."""

    is_clean: bool
    keeps_gaps: bool


def begin_opening(disk: Disk, log_dir: str, notes: list[str]) -> LastStop:
    """Return how the log dir was left, and rename the clean shutdown marker for the start."""
    clean, opening = (posixpath.join(log_dir, name) for name in (CLEAN_SHUTDOWN_FILE, OPENING_FILE))
    try:
        is_clean = read_clean_shutdown(disk, clean) is not None
    except CorruptCheckpointError as error:
        notes.append(f"{error}: taken for an unclean stop")
        is_clean = False
        disk.remove(clean)
    if is_clean:
        disk.rename(clean, opening)
    disk.sync_directory(log_dir)
    return LastStop(is_clean, keeps_gaps=disk.exists(opening))


def end_opening(disk: Disk, log_dir: str) -> None:
    """Remove the marker, before any append."""
    path = posixpath.join(log_dir, OPENING_FILE)
    if disk.exists(path):
        remove_durably(disk, path)


class UnopenedMark:
    """Says of one log that it was closed, and could not be opened since."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = posixpath.join(directory, UNOPENED_FILE)

    @property
    def is_there(self) -> bool:
        """Whether the log says so."""
        return self._disk.exists(self._path)

    def put(self) -> None:
        """Write the marker, if the disk has space."""
        try:
            with closing(self._disk.create_file(self._path)):
                self._disk.sync_directory(self._directory)
        except OSError as error:
            if not is_refusal(error):
                raise

    def remove(self) -> None:
        """Remove the marker, before any append."""
        remove_durably(self._disk, self._path)


class HostedLog(NamedTuple):
    """A partition's log, and the topic that it belongs to."""

    log: PartitionLog
    topic_id: bytes | None


class _Noted(NamedTuple):
    """The checkpointed state of a log: recovery point, log start, clean shutdown."""

    recovery_point: Offset
    log_start_offset: Offset
    last_stop: LastStop
    topic_id: bytes | None


class LogDir:
    """One log dir. Once its disk has failed it is offline, and not used again."""

    def __init__(
        self, files: OpenFiles, path: str, guard: AbstractContextManager[object] | None = None
    ) -> None:
        self.path = path
        self.hosted: dict[TopicPartition, HostedLog] = {}
        self.futures: dict[TopicPartition, HostedLog] = {}
        """Future replicas, which are being moved here from another log dir."""
        self.unopened: dict[TopicPartition, _Noted] = {}
        """Logs that a full disk did not let us open; they are left as they are."""
        self.notes: list[str] = []
        self.failure: OSError | None = None
        self.open_files = files
        self._disk = files.disk
        self.was_clean = False
        """Whether every log was closed in the last run, and none was opened since."""
        guard = nullcontext() if guard is None else guard
        self._recovery_points = OffsetCheckpoint(self._disk, self._file(RECOVERY_POINT_FILE), guard)
        self._start_offsets = OffsetCheckpoint(self._disk, self._file(LOG_START_OFFSET_FILE), guard)
        self._first_dirty = OffsetCheckpoint(self._disk, self._file(FIRST_DIRTY_OFFSET_FILE), guard)
        self._high_watermarks = OffsetCheckpoint(self._disk, self._file(HIGH_WATERMARK_FILE), guard)
        self.high_watermarks: dict[TopicPartition, Offset] = {}
        """Up to where logs were known to be committed, as the file says."""
        self.first_dirty_offsets: dict[TopicPartition, Offset] = {}
        """Up to where logs have been compacted; never beyond their recovery points."""

    @property
    def is_online(self) -> bool:
        """Whether the log dir can be used."""
        return self.failure is None

    def fail(self, failure: OSError) -> None:
        """Take the log dir, and every log in it, offline."""
        self.failure = self.failure or failure
        for hosted in [*self.hosted.values(), *self.futures.values()]:
            hosted.log.take_offline(failure)

    def refuse(self, error: OSError) -> ApiError:
        """Return the error for a client; take the log dir offline if its disk has failed."""
        if not is_refusal(error) and not isinstance(error, FileExistsError):
            self.fail(error)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path}: {error}")

    # -- opening and closing --------------------------------------------------------------------

    def open(self, config_of: ConfigOf, now_ms: int, is_stray: IsStray = lambda *_: False) -> None:
        """Open every existing log. A failing disk takes the log dir offline."""
        try:
            if not self._disk.exists(self.path):
                self._disk.make_directory(self.path)
                self._disk.sync_directory(posixpath.dirname(self.path) or ".")
            last_stop = begin_opening(self._disk, self.path, self.notes)
            self.was_clean = last_stop.is_clean
            points = self._read_offsets(RECOVERY_POINT_FILE, "every log is gone through")
            starts = self._read_offsets(LOG_START_OFFSET_FILE, "deleted records may be back")
            for name, partition in self._swept():
                point, start = (
                    points.get(partition, FIRST_OFFSET),
                    starts.get(partition, FIRST_OFFSET),
                )
                noted = _Noted(point, start, last_stop, self._topic_id(self._file(name)))
                if is_stray(partition, noted.topic_id):
                    self._set_aside(name, partition, noted.topic_id)
                else:
                    self._open_found(name, partition, config_of(partition.topic), now_ms, noted)
            self._read_first_dirty_offsets()
            self.high_watermarks = self._read_offsets(HIGH_WATERMARK_FILE, "leaders are asked")
            end_opening(self._disk, self.path)
        except OSError as error:
            self.fail(error)

    def _swept(self) -> Iterator[tuple[str, TopicPartition]]:
        """Remove deleted partitions; return the directories of logs."""
        for name in self._disk.list_directory(self.path):
            partition = partition_of(name) or future_of(name)
            is_ours = partition is not None or is_deleted(name)
            if is_ours and not self._disk.is_directory(self._file(name)):
                self.notes.append(f"{self._file(name)} is no directory, and left alone")
            elif is_deleted(name):
                remove_tree(self._disk, self._file(name))
            elif partition is not None:
                yield name, partition

    def _set_aside(self, name: str, partition: TopicPartition, topic_id: bytes | None) -> None:
        """Give a partition of no topic another name, and do nothing else to it."""
        if partition_of(name) is None:  # a future replica without its replica
            remove_tree(self._disk, self._file(name))
            return
        names = stray_names(partition, topic_id or ZERO_UUID)
        stray = next(each for each in names if not self._disk.exists(self._file(each)))
        self._disk.rename(self._file(name), self._file(stray))
        self._disk.sync_directory(self.path)
        self.notes.append(f"{self._file(name)} belongs to no topic, and is {stray} from now on")

    def _open_found(
        self, name: str, partition: TopicPartition, config: TopicConfig, now_ms: int, noted: _Noted
    ) -> None:
        is_future = partition_of(name) is None
        try:
            hosted = self._open_log(name, partition, config, now_ms, noted)
        except OSError as error:
            if not is_refusal(error):
                raise
            self.notes.append(f"{self._file(name)} is not open: {error}")
            if noted.last_stop.keeps_gaps:
                UnopenedMark(self._disk, self._file(name)).put()
            if not is_future:
                self.unopened[partition] = noted
        else:
            (self.futures if is_future else self.hosted)[partition] = hosted

    def _read_first_dirty_offsets(self) -> None:
        """Read the clean offsets, and lower the offsets of logs that a crash has truncated."""
        noted = read_first_dirty_offsets(self._disk, self._file(FIRST_DIRTY_OFFSET_FILE))
        self.first_dirty_offsets = {
            partition: min(offset, self.hosted[partition].log.end_offset)
            for partition, offset in noted.items()
            if partition in self.hosted
        }
        if self.first_dirty_offsets != noted:
            try:
                self._first_dirty.told(self.first_dirty_offsets)()
            except OSError as error:
                if not is_refusal(error):
                    raise
                self.notes.append(f"{self.path}: {error}")  # the recovery does not depend on it

    def close(self, now_ms: int, broker_epoch: int) -> None:
        """Close every log and leave the mark of a clean stop, which is the last thing written."""
        if not self.is_online:
            return
        try:
            for hosted in [*self.hosted.values(), *self.futures.values()]:
                hosted.log.close(now_ms)
            self.checkpoint()
            if not self.unopened:  # an unopened log may have lost its tail
                write_clean_shutdown(self._disk, self._file(CLEAN_SHUTDOWN_FILE), broker_epoch)
        except OSError as error:
            self.fail(error)
        except ApiError as error:  # a log went offline while it was being closed
            self.notes.append(f"{self.path}: no clean stop, {error.detail}")

    def _read_offsets(self, name: str, without_it: str) -> dict[TopicPartition, Offset]:
        """Read a checkpoint; an invalid one counts as missing."""
        try:
            return read_offsets(self._disk, self._file(name))
        except CorruptCheckpointError as error:
            self.notes.append(f"{error}: {without_it}")
            return {}

    def reopen(self, partition: TopicPartition, config: TopicConfig, now_ms: int) -> PartitionLog:
        """Open a log that a full disk did not let us open; `OSError` if it still does not."""
        self.was_clean = False  # an opening was interrupted
        noted = self.unopened[partition]
        noted = noted._replace(last_stop=noted.last_stop._replace(is_clean=False))
        hosted = self._open_log(str(partition), partition, config, now_ms, noted)
        self.hosted[partition] = hosted
        del self.unopened[partition]
        return hosted.log

    def _open_log(
        self, name: str, partition: TopicPartition, config: TopicConfig, now_ms: int, noted: _Noted
    ) -> HostedLog:
        directory = self._file(name)
        is_clean, keeps_gaps = noted.last_stop
        mark = UnopenedMark(self._disk, directory)
        is_marked = mark.is_there
        log, findings = open_log(
            self.open_files,
            directory,
            config,
            now_ms,
            is_clean=is_clean,
            keeps_gaps=keeps_gaps or is_marked,
            recovery_point=noted.recovery_point,
            log_start_offset=noted.log_start_offset,
            on_recovery_point_lowered=lambda offset: self._lower(partition, offset),
        )
        if is_marked:
            mark.remove()
        self.notes += [f"{partition}: {note}" for note in findings.notes]
        return HostedLog(log, noted.topic_id)

    def _topic_id(self, directory: str) -> bytes | None:
        try:
            return read_topic_id(self._disk, posixpath.join(directory, PARTITION_METADATA_FILE))
        except CorruptCheckpointError as error:
            self.notes.append(str(error))
            return None

    # -- partitions -----------------------------------------------------------------------------

    def create(
        self, partition: TopicPartition, topic_id: bytes, config: TopicConfig, now_ms: int
    ) -> PartitionLog:
        """Create an empty log."""
        self.hosted[partition] = self.make(str(partition), partition, topic_id, config, now_ms)
        return self.hosted[partition].log

    def make(
        self,
        name: str,
        partition: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        now_ms: int,
        *,
        sync_name: bool = True,
    ) -> HostedLog:
        """Create an empty log in a directory of this name; any thread may. It is not hosted yet.

        It is durable then, or without `sync_name` after the next `sync`.
        """
        assert partition not in self.hosted, partition
        directory = self._file(name)
        on_lowered = partial(self._lower, partition)
        is_there = self._disk.exists(directory)
        if is_there and not self._disk.is_directory(directory):
            raise FileExistsError(errno.EEXIST, "is no directory, and left alone", directory)
        try:
            if is_there:  # a full disk did not let us take it away
                remove_tree(self._disk, directory)
            log = begin_log(self.open_files, directory, topic_id, config, now_ms, on_lowered)
            if sync_name:
                self.sync()
        except OSError:
            with suppress(OSError):  # release the allocated space of a full disk
                remove_tree(self._disk, directory)
            raise
        return HostedLog(log, topic_id)

    def sync(self) -> None:
        """Make the names in this log dir durable; any thread may call it."""
        self._disk.sync_directory(self.path)

    def delete(self, partition: TopicPartition, mark: bytes) -> str:
        """Delete a log: its directory is renamed at once; return the new name.

        `remove_deleted` removes it when no reader can use it any more.
        """
        deleted = self.begin_delete(partition, mark)
        for write in self.finish_deletes():
            write()
        return deleted

    def begin_delete(self, partition: TopicPartition, mark: bytes) -> str:
        """Rename a log for deletion, and leave it to `finish_deletes` to make that durable."""
        deleted = self._file(deleted_name(partition, mark))
        if self.unopened.pop(partition, None) is None:
            self._retire(self.hosted.pop(partition), deleted)
        else:
            self._disk.rename(self._file(str(partition)), deleted)
        return deleted

    def finish_deletes(self) -> list[Write]:
        """Return the writes that make deletions durable."""
        gone = self.first_dirty_offsets.keys() - self.hosted.keys()
        for partition in gone:  # another topic may get the name
            del self.first_dirty_offsets[partition]
        told = [self._first_dirty.told(self.first_dirty_offsets)] if gone else []
        return [*told, *self.begin_checkpoint(), self.sync]

    def drop_future(self, partition: TopicPartition, mark: bytes) -> str:
        """Drop a future replica; return the directory that `remove_deleted` has to remove."""
        hosted = self.futures.pop(partition)
        deleted = self._file(deleted_name(partition, mark))
        self._retire(hosted, deleted)
        return deleted

    def adopt_future(self, partition: TopicPartition) -> None:
        """Make the future replica the partition; its new directory name is not durable yet."""
        hosted = self.futures[partition]
        directory = self._file(str(partition))
        self._disk.rename(hosted.log.directory, directory)
        relocate(hosted.log, directory)
        self.hosted[partition] = self.futures.pop(partition)

    def _retire(self, hosted: HostedLog, deleted: str) -> None:
        for segment in hosted.log.segments:
            self.open_files.forget(segment.path)
        hosted.log.take_offline(FileNotFoundError("the partition was deleted"))
        self._disk.rename(hosted.log.directory, deleted)

    def remove_deleted(self, directory: str) -> None:
        """Remove the files of a log that was deleted."""
        with suppress(FileNotFoundError):
            remove_tree(self._disk, directory)

    # -- checkpoints ----------------------------------------------------------------------------

    def begin_checkpoint(self) -> list[Write]:
        """Collect recovery points and log start offsets; return the writes of the checkpoints."""
        logs = {partition: hosted.log for partition, hosted in self._all_logs()}
        points = {partition: log.recovery_point for partition, log in logs.items()}
        # The first segment determines the log start, unless DeleteRecords moved it.
        starts = {
            partition: log.log_start_offset
            for partition, log in logs.items()
            if log.log_start_offset > log.segments.base_offset
        }
        for partition, noted in self.unopened.items():
            points[partition], starts[partition] = noted[:2]
        return [self._recovery_points.told(points), self._start_offsets.told(starts)]

    def checkpoint(self) -> None:
        """Write down up to where each log is durable, and where it begins."""
        for write in self.begin_checkpoint():
            write()

    def note_high_watermarks(self, offsets: dict[TopicPartition, Offset]) -> Write | None:
        """Set high watermarks; return the write of the checkpoint, if they have changed."""
        if offsets == self.high_watermarks:
            return None
        self.high_watermarks = offsets
        return self._high_watermarks.told(offsets)

    def note_clean(self, partition: TopicPartition, offset: Offset) -> Write:
        """Set the end of a log's compacted part; return the write of the checkpoint."""
        self.first_dirty_offsets[partition] = offset
        return self._first_dirty.told(self.first_dirty_offsets)

    def _lower(self, partition: TopicPartition, offset: Offset) -> None:
        points = {known: noted.recovery_point for known, noted in self.unopened.items()}
        points |= {known: hosted.log.recovery_point for known, hosted in self._all_logs()}
        points[partition] = offset
        self._recovery_points.told(points)()
        if self.first_dirty_offsets.get(partition, offset) > offset:
            self.note_clean(partition, offset)()

    def _all_logs(self) -> list[tuple[TopicPartition, HostedLog]]:
        return [*self.hosted.items(), *self.futures.items()]  # it never has both of one

    def _file(self, name: str) -> str:
        return posixpath.join(self.path, name)
