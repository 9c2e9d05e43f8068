"""One partition as this broker sees it: a log, a role, and up to where readers may see.

While a partition has one replica, everything in its log is committed: the high watermark is the
end of the log.
"""

from collections.abc import Callable
from typing import NamedTuple

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.storage.admission import Origin
from ottla.storage.log import Appended, PartitionLog
from ottla.storage.log_slice import LogSlice

NO_EPOCH = -1


class Fetched(NamedTuple):
    """What a reader gets of one partition, and where the partition stands."""

    records: LogSlice
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class Partition:
    """The leader's side of one partition."""

    def __init__(
        self,
        name: TopicPartition,
        topic_id: bytes,
        log: PartitionLog,
        on_progress: Callable[[TopicPartition], None],
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = NO_EPOCH
        self._on_progress = on_progress

    @property
    def high_watermark(self) -> int:
        """The offset before which every in-sync replica has everything."""
        return self.log.end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset before which no transaction is open."""
        unstable = self.log.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log.log_start_offset), self.high_watermark)

    def lead(self, leader_epoch: int) -> None:
        """Take writes, and stamp them with this epoch."""
        self.leader_epoch = leader_epoch
        self.log.producers.acknowledge(self.high_watermark)

    def check_leader(self, leader_epoch: int = NO_EPOCH) -> None:
        """Raise ApiError unless this broker leads, in the epoch that the peer believes in."""
        if self.leader_epoch == NO_EPOCH:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is not led here")
        if leader_epoch in {NO_EPOCH, self.leader_epoch}:
            return
        is_late = leader_epoch < self.leader_epoch
        raise ApiError(
            ErrorCode.FENCED_LEADER_EPOCH if is_late else ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{self.name} is led in epoch {self.leader_epoch}, not {leader_epoch}",
        )

    def append_as_leader(
        self, data: memoryview, now_ms: int, *, origin: Origin = Origin.CLIENT
    ) -> Appended:
        """Append one produced batch, and wake those who wait for it."""
        self.check_leader()
        appended = self.log.append_as_leader(data, self.leader_epoch, now_ms, origin=origin)
        if not appended.is_duplicate:
            self.log.producers.acknowledge(self.high_watermark)
            self._on_progress(self.name)
        return appended

    def read(
        self,
        offset: int,
        bytes_max: int,
        *,
        leader_epoch: int = NO_EPOCH,
        is_committed_only: bool = False,
        whole_batch: bool = True,
    ) -> Fetched:
        """Name what a consumer may see from an offset on: below the high watermark.

        One that wants to see no open transaction is shown what is below the last stable offset.
        """
        self.check_leader(leader_epoch)
        stable = self.last_stable_offset
        end_offset = stable if is_committed_only else self.high_watermark
        records = self.log.read(offset, end_offset, bytes_max, whole_batch=whole_batch)
        return Fetched(records, self.high_watermark, stable, self.log.log_start_offset)
