"""The folders that a broker keeps its logs in, one per disk.

    data-1/  meta.properties  .kafka_cleanshutdown  recovery-point-offset-checkpoint  …
             orders-0/  orders-3/  payments-1/
    data-2/  meta.properties  …
             orders-1/  orders-2/

A new partition goes where the fewest are. A folder whose disk fails takes its own partitions
offline, and no others.
"""

import posixpath
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.environment.disk import Disk
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.topic_config import TopicConfig
from ottla.model.topic_names import CLUSTER_METADATA_TOPIC
from ottla.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_OFFSET_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    CorruptCheckpointError,
    read_clean_shutdown,
    read_offsets,
    read_topic_id,
    remove_durably,
    write_clean_shutdown,
    write_offsets,
    write_topic_id,
)
from ottla.storage.log import PartitionLog
from ottla.storage.open_files import OPEN_FILES_MAX, OpenFiles
from ottla.storage.recovery import open_log

DELETED_DIRECTORY_SUFFIX: Final = "-delete"
_PARTITION: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-([0-9]{1,10})")

ConfigOf = Callable[[str], TopicConfig]


class HostedLog(NamedTuple):
    """A partition's log, and the topic that it belongs to."""

    log: PartitionLog
    topic_id: bytes | None


class LogDir:
    """One folder. Once its disk has failed it is offline, and is not asked again."""

    def __init__(self, files: OpenFiles, path: str) -> None:
        self.path = path
        self.hosted: dict[TopicPartition, HostedLog] = {}
        self.notes: list[str] = []
        self.failure: OSError | None = None
        self.open_files = files
        self._disk = files.disk
        self._previous_broker_epoch: int | None = None

    @property
    def is_online(self) -> bool:
        """Whether the folder can be used."""
        return self.failure is None

    @property
    def was_clean(self) -> bool:
        """Whether every log was closed when the folder was used last."""
        return self._previous_broker_epoch is not None

    def fail(self, failure: OSError) -> None:
        """Take the folder, and every log in it, offline."""
        self.failure = self.failure or failure
        for hosted in self.hosted.values():
            hosted.log.take_offline(failure)

    # -- opening and closing --------------------------------------------------------------------

    def open(self, config_of: ConfigOf, now_ms: int) -> None:
        """Open every log that is there. A failing disk takes the folder offline."""
        try:
            if not self._disk.exists(self.path):
                self._disk.make_directory(self.path)
                self._disk.sync_directory(posixpath.dirname(self.path) or ".")
            self._previous_broker_epoch = self._take_clean_mark()
            recovery_points = self._read_offsets(RECOVERY_POINT_FILE)
            start_offsets = self._read_offsets(LOG_START_OFFSET_FILE)
            for name in self._disk.list_directory(self.path):
                match = _PARTITION.fullmatch(name)
                if name.endswith(DELETED_DIRECTORY_SUFFIX):
                    self._remove_tree(posixpath.join(self.path, name))
                elif match is not None and match[1] != CLUSTER_METADATA_TOPIC:
                    partition = TopicPartition(match[1], int(match[2]))
                    self.hosted[partition] = self._open_log(
                        partition,
                        config_of(partition.topic),
                        now_ms,
                        recovery_points.get(partition, 0),
                        start_offsets.get(partition, 0),
                    )
        except OSError as error:
            self.fail(error)

    def close(self, now_ms: int, broker_epoch: int) -> None:
        """Close every log and leave the mark of a clean stop, which is the last thing written."""
        if not self.is_online:
            return
        try:
            for hosted in self.hosted.values():
                hosted.log.close(now_ms)
            self.checkpoint()
            write_clean_shutdown(self._disk, self._file(CLEAN_SHUTDOWN_FILE), broker_epoch)
        except OSError as error:
            self.fail(error)
        except ApiError as error:  # a log went offline while it was being closed
            self.notes.append(f"{self.path}: no clean stop, {error.detail}")

    def _take_clean_mark(self) -> int | None:
        """Read the mark and remove it, before anything else: the next crash must not find it."""
        path = self._file(CLEAN_SHUTDOWN_FILE)
        try:
            epoch = read_clean_shutdown(self._disk, path)
        except CorruptCheckpointError as error:
            self.notes.append(f"{error}: taken for an unclean stop")
            epoch = None
        remove_durably(self._disk, path)
        return epoch

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self._disk, self._file(name))
        except CorruptCheckpointError as error:
            self.notes.append(f"{error}: every log is recovered from its beginning")
            self._previous_broker_epoch = None
            return {}

    def _open_log(
        self,
        partition: TopicPartition,
        config: TopicConfig,
        now_ms: int,
        recovery_point: int,
        log_start_offset: int,
    ) -> HostedLog:
        directory = self._file(str(partition))
        log, findings = open_log(
            self.open_files,
            directory,
            config,
            now_ms,
            is_clean=self.was_clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            on_recovery_point_lowered=lambda offset: self._lower(partition, offset),
        )
        self.notes += [f"{partition}: {note}" for note in findings.notes]
        try:
            topic_id = read_topic_id(self._disk, posixpath.join(directory, PARTITION_METADATA_FILE))
        except CorruptCheckpointError as error:
            self.notes.append(str(error))
            topic_id = None
        return HostedLog(log, topic_id)

    # -- partitions -----------------------------------------------------------------------------

    def create(
        self, partition: TopicPartition, topic_id: bytes, config: TopicConfig, now_ms: int
    ) -> PartitionLog:
        """Make an empty log."""
        assert partition not in self.hosted, partition
        hosted = self._open_log(partition, config, now_ms, 0, 0)
        path = posixpath.join(hosted.log.directory, PARTITION_METADATA_FILE)
        write_topic_id(self._disk, path, topic_id)
        self._disk.sync_directory(self.path)
        self.hosted[partition] = HostedLog(hosted.log, topic_id)
        return hosted.log

    def delete(self, partition: TopicPartition, mark: str) -> str:
        """Take a log away: its folder gets another name at once, which is returned.

        `remove_deleted` removes it when nobody can be reading from it any more.
        """
        hosted = self.hosted.pop(partition)
        for segment in hosted.log.segments:
            self.open_files.forget(segment.path)
        hosted.log.take_offline(FileNotFoundError("the partition was deleted"))
        deleted = self._file(f"{partition}.{mark}{DELETED_DIRECTORY_SUFFIX}")
        self._disk.rename(hosted.log.directory, deleted)
        self._disk.sync_directory(self.path)
        return deleted

    def remove_deleted(self, directory: str) -> None:
        """Remove the files of a log that was deleted."""
        with suppress(FileNotFoundError):
            self._remove_tree(directory)

    def _remove_tree(self, directory: str) -> None:
        for name in self._disk.list_directory(directory):
            self._disk.remove(posixpath.join(directory, name))
        self._disk.remove_directory(directory)

    # -- checkpoints ----------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write down up to where each log is durable, and where it begins."""
        logs = {partition: hosted.log for partition, hosted in self.hosted.items()}
        points = {partition: log.recovery_point for partition, log in logs.items()}
        # Where a log begins is told by its first segment, unless DeleteRecords said more.
        starts = {
            partition: log.log_start_offset
            for partition, log in logs.items()
            if log.log_start_offset > log.segments.base_offset
        }
        write_offsets(self._disk, self._file(RECOVERY_POINT_FILE), points)
        write_offsets(self._disk, self._file(LOG_START_OFFSET_FILE), starts)

    def _lower(self, partition: TopicPartition, offset: int) -> None:
        points = {known: hosted.log.recovery_point for known, hosted in self.hosted.items()}
        points[partition] = offset
        write_offsets(self._disk, self._file(RECOVERY_POINT_FILE), points)

    def _file(self, name: str) -> str:
        return posixpath.join(self.path, name)


class LogDirs:
    """All folders of a broker, and the logs in them."""

    def __init__(
        self, disk: Disk, paths: Iterable[str], *, open_files_max: int = OPEN_FILES_MAX
    ) -> None:
        files = OpenFiles(disk, open_files_max)
        self.dirs = [LogDir(files, path) for path in paths]
        assert self.dirs, "a broker needs a folder for its logs"

    @property
    def online(self) -> list[LogDir]:
        """The folders whose disks have not failed."""
        return [folder for folder in self.dirs if folder.is_online]

    def open(self, config_of: ConfigOf, now_ms: int) -> None:
        """Open every log in every folder."""
        for folder in self.dirs:
            folder.open(config_of, now_ms)

    def close(self, now_ms: int, broker_epoch: int) -> None:
        """Close every log in every folder that is online."""
        for folder in self.dirs:
            folder.close(now_ms, broker_epoch)

    def dir_of(self, partition: TopicPartition) -> LogDir | None:
        """Return the folder that has this partition, online or not."""
        return next((folder for folder in self.dirs if partition in folder.hosted), None)

    def log_of(self, partition: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition that is kept here."""
        folder = self.dir_of(partition)
        return None if folder is None else folder.hosted[partition].log

    def create(
        self, partition: TopicPartition, topic_id: bytes, config: TopicConfig, now_ms: int
    ) -> PartitionLog:
        """Make an empty log in the online folder that has the fewest."""
        if not self.online:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "every log folder is offline")
        folder = min(self.online, key=lambda folder: len(folder.hosted))
        try:
            return folder.create(partition, topic_id, config, now_ms)
        except OSError as error:
            folder.fail(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{folder.path}: {error}") from error

    def checkpoint(self) -> None:
        """Write the checkpoints of every folder that is online."""
        for folder in self.online:
            try:
                folder.checkpoint()
            except OSError as error:
                folder.fail(error)
