"""One partition as this broker sees it: a log, a role, and up to where readers may see.

While a partition has one replica, everything in its log is committed: the high watermark is the
end of the log.
"""

from collections.abc import Callable
from typing import NamedTuple

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.topic_config import CleanupPolicy
from ottla.replication.traffic import Traffic
from ottla.storage.admission import Origin
from ottla.storage.leader_epochs import UNKNOWN_END, EpochEnd
from ottla.storage.log import Appended, PartitionLog
from ottla.storage.log_slice import LogSlice

NO_EPOCH = -1
HIGH_WATERMARK = -1
"""In the place of an offset up to which records are deleted."""


class Fetched(NamedTuple):
    """What a reader gets of one partition, and where the partition stands."""

    records: LogSlice
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    traffic: Traffic
    """Where it is to be counted that this was sent."""
    aborted: list[tuple[int, int]] | None = None
    """For who sees no open transaction: producer and first offset of the aborted ones in here."""
    diverging: EpochEnd | None = None
    """If the reader has something else than this log: up to where the two may agree."""


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
        self.traffic = Traffic()
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
        if leader_epoch == self.leader_epoch or leader_epoch == NO_EPOCH:  # noqa: PLR1714 - hot
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
            traffic = self.traffic
            traffic.batches_in += 1
            traffic.records_in += appended.last_offset - appended.base_offset + 1
            traffic.bytes_in += len(data)
            self._on_progress(self.name)
        return appended

    def read(
        self,
        offset: int,
        bytes_max: int,
        *,
        leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        is_committed_only: bool = False,
        whole_batch: bool = True,
    ) -> Fetched:
        """Name what a consumer may see from an offset on: below the high watermark.

        One that wants to see no open transaction is shown what is below the last stable offset.
        One that tells the epoch of what it has before the offset is shown nothing if that is not
        what this log has there.
        """
        self.check_leader(leader_epoch)
        log = self.log
        high_watermark = stable = self.high_watermark
        if log.producers.first_unstable_offset is not None:
            stable = self.last_stable_offset
        if last_fetched_epoch != NO_EPOCH:
            diverging = self._divergence(offset, last_fetched_epoch)
            if diverging is not None:
                nothing = log.read(log.end_offset, log.end_offset, 0)
                start_offset = log.log_start_offset
                return Fetched(
                    nothing, high_watermark, stable, start_offset, self.traffic, None, diverging
                )
        end_offset = stable if is_committed_only else high_watermark
        records = log.read(offset, end_offset, bytes_max, whole_batch=whole_batch)
        aborted = None
        if is_committed_only:
            found = log.aborted_transactions(offset, stable) if len(records) else ()
            aborted = [(transaction.producer_id, transaction.first_offset) for transaction in found]
        start_offset = log.log_start_offset
        return Fetched(records, high_watermark, stable, start_offset, self.traffic, aborted)

    def _divergence(self, offset: int, epoch: int) -> EpochEnd | None:
        """Tell where a reader's log stops to be this one, if it has this epoch before an offset."""
        end = self.end_of_epoch(epoch)
        if end == UNKNOWN_END or offset < self.log.log_start_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} from {self.log.log_start_offset} has no offset {offset}"
                f" after epoch {epoch}",
            )
        return end if end.epoch < epoch or end.end_offset < offset else None

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Return the greatest epoch up to this one and where it ends; UNKNOWN_END of later ones.

        The leader's own epoch has begun at the end of the log even if nothing is written in it.
        """
        log = self.log
        latest = log.epochs.latest_epoch
        is_begun = latest is not None and latest >= self.leader_epoch
        if is_begun or not (latest or 0) <= epoch <= self.leader_epoch:
            return log.epochs.end_offset_for(epoch, log.end_offset)
        is_known = latest is None or epoch == self.leader_epoch
        return EpochEnd(epoch if is_known else latest or 0, log.end_offset)

    def is_behind(self, offset: int) -> bool:
        """Tell whether more than one read is needed from here to the end of the log.

        What is in several files cannot be read at once: a reader should not wait for more.
        """
        return offset < self.log.segments.active.base_offset

    def delete_records(self, offset: int) -> int:
        """Let the log begin at this offset, or at the high watermark; return where it begins."""
        self.check_leader()
        cleanup = self.log.config.cleanup_policy
        if cleanup == {CleanupPolicy.COMPACT}:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"{self.name} is compacted, not deleted")
        until = self.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= until <= self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} cannot begin at {until}: it may up to {self.high_watermark}",
            )
        self.log.advance_log_start(max(until, self.log.log_start_offset))
        return self.log.log_start_offset
