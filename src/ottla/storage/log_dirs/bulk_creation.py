"""Creates many logs at once, on a thread: each costs several waits for the disk."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import LeaderEpoch, TopicPartition
from ottla.model.settings.topic_config import TopicConfig
from ottla.storage.log.leader_epochs import NO_EPOCH
from ottla.storage.log.log import PartitionLog
from ottla.storage.log_dirs.log_dir import HostedLog, LogDir


class NewLog(NamedTuple):
    """A log that is wanted."""

    partition: TopicPartition
    topic_id: bytes
    config: TopicConfig
    leader_epoch: LeaderEpoch
    """Noted from the beginning; NO_EPOCH if none begins."""


class PlacedLog(NamedTuple):
    """A log to create, and the log dirs to try, the best one first."""

    wanted: NewLog
    folders: tuple[LogDir, ...]


class MadeLog(NamedTuple):
    """A created log, to be hosted by the thread that owns the log dirs."""

    wanted: NewLog
    log_dir: LogDir | None
    hosted: HostedLog | None
    failures: tuple[tuple[LogDir, OSError], ...]

    def host(self) -> PartitionLog:
        """Register the log with its log dir; ApiError KAFKA_STORAGE_ERROR if there is none."""
        refusals = [log_dir.refuse(error) for log_dir, error in self.failures]
        if self.log_dir is None or self.hosted is None:
            offline = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
            raise refusals[0] if refusals else offline
        self.log_dir.hosted[self.wanted.partition] = self.hosted
        return self.hosted.log


def place_logs(folders: Iterable[LogDir], wanted: Iterable[NewLog]) -> list[PlacedLog]:
    """Assign each log to the online log dir with the fewest, and the others as fallbacks."""
    counts = Counter({f: len(f.hosted) + len(f.futures) for f in folders if f.is_online})
    placed: list[PlacedLog] = []
    for log in wanted:
        ranked = sorted(counts, key=counts.__getitem__)
        placed.append(PlacedLog(log, tuple(ranked)))
        for log_dir in ranked[:1]:
            counts[log_dir] += 1
    return placed


def make_logs(placed: Iterable[PlacedLog], now_ms: int) -> list[MadeLog]:
    """Create empty logs where they were placed, durably; any thread may. Raises nothing."""
    every = [_make(log, folders, now_ms) for log, folders in placed]
    failures = _sync(dict.fromkeys(made.log_dir for made in every if made.log_dir is not None))
    return [_checked(made, failures) for made in every]


def _sync(folders: Iterable[LogDir]) -> dict[LogDir, OSError]:
    """Make the names of new logs durable, once per log dir; return which were not."""
    failures: dict[LogDir, OSError] = {}
    for log_dir in folders:
        try:
            log_dir.sync()
        except OSError as error:
            failures[log_dir] = error
    return failures


def _checked(made: MadeLog, failures: dict[LogDir, OSError]) -> MadeLog:
    if made.log_dir is None or made.log_dir not in failures:
        return made
    failed = (made.log_dir, failures[made.log_dir])
    return MadeLog(made.wanted, None, None, (*made.failures, failed))


def _make(log: NewLog, folders: tuple[LogDir, ...], now_ms: int) -> MadeLog:
    failures: list[tuple[LogDir, OSError]] = []
    for log_dir in folders:
        try:
            hosted = log_dir.make(
                str(log.partition),
                log.partition,
                log.topic_id,
                log.config,
                now_ms,
                sync_name=False,
            )
        except OSError as error:
            failures.append((log_dir, error))
        else:
            if log.leader_epoch != NO_EPOCH and hosted.log.epochs.latest_epoch is None:
                hosted.log.epochs.note(log.leader_epoch, hosted.log.end_offset)
            return MadeLog(log, log_dir, hosted, tuple(failures))
    return MadeLog(log, None, None, tuple(failures))
