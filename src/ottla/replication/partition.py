"""One replica of a partition: its log, its role, and the offsets that readers may see.

    leader    appends writes, and tracks its followers (`in_sync.py`)
    follower  copies its leader's log (`follower.py`), and serves consumers up to its high
              watermark
    neither   keeps its log, and waits for a role

Everything below the high watermark is committed, and consumers see no more. A leader raises it when
all of the maximal ISR have more, as long as enough are in sync (KIP-966); in one leader epoch it
never falls. With a single replica, everything in the log is committed.
"""

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import (
    FIRST_OFFSET,
    NO_OFFSET,
    BrokerId,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicPartition,
)
from ottla.model.settings.topic_config import CleanupPolicy
from ottla.replication.follower import truncation_offset
from ottla.replication.in_sync import (
    NO_LEADER,
    Assignment,
    Follower,
    FollowerKeys,
    InSync,
    ReplicaProgress,
)
from ottla.storage.files.log_slice import LogSlice
from ottla.storage.log.admission import Origin, Validated
from ottla.storage.log.leader_epochs import NO_EPOCH, UNKNOWN_END, EpochEnd
from ottla.storage.log.log import Appended, PartitionLog
from ottla.storage.producers.transaction_terms import ANY_TRANSACTION, TransactionTerms

NO_REPLICA: Final = BrokerId(-1)
HIGH_WATERMARK: Final = Offset(-1)
"""In the place of an offset up to which records are deleted."""


class Traffic:
    """The records and bytes that a partition received and sent since the broker started.

    Plain numbers that only grow: counting must cost next to nothing.
    """

    __slots__ = ("batches_in", "bytes_in", "bytes_out", "reads", "records_in")

    def __init__(self) -> None:
        self.batches_in = 0
        self.records_in = 0
        self.bytes_in = 0
        self.reads = 0
        self.bytes_out = 0

    def add(self, other: "Traffic") -> None:
        """Add the counts of another instance."""
        self.batches_in += other.batches_in
        self.records_in += other.records_in
        self.bytes_in += other.bytes_in
        self.reads += other.reads
        self.bytes_out += other.bytes_out


class Fetched(NamedTuple):
    """The records that a fetch gets of one partition, and the partition's offsets."""

    records: LogSlice
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    traffic: Traffic
    """Where it is to be counted that this was sent."""
    aborted: list[tuple[ProducerId, Offset]] | None = None
    """For read_committed: producer and first offset of each aborted transaction in the records."""
    diverging: EpochEnd | None = None
    """If the reader has something else than this log: up to where the two may agree."""
    preferred_replica: BrokerId = NO_REPLICA
    """A replica closer to the consumer, which should fetch from it instead."""


def end_of_epoch(log: PartitionLog, leader_epoch: LeaderEpoch, epoch: LeaderEpoch) -> EpochEnd:
    """Return the largest epoch up to this one and its end offset; UNKNOWN_END for later epochs.

    The leader's own epoch begins at the end of the log even if it has no records.
    """
    latest = log.epochs.latest_epoch
    is_begun = latest is not None and latest >= leader_epoch
    if is_begun or not (latest or 0) <= epoch <= leader_epoch:
        return log.epochs.end_offset_for(epoch, log.end_offset)
    if latest is None or epoch == leader_epoch:
        return EpochEnd(epoch, log.end_offset)
    return EpochEnd(latest, log.end_offset)


def divergence(
    log: PartitionLog, leader_epoch: LeaderEpoch, offset: Offset, epoch: LeaderEpoch
) -> EpochEnd | None:
    """Return where a reader's log diverges, if it has this epoch before an offset."""
    end = end_of_epoch(log, leader_epoch, epoch)
    if end == UNKNOWN_END or offset < log.log_start_offset:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"a log from {log.log_start_offset} has no offset {offset} after epoch {epoch}",
        )
    return end if end.epoch < epoch or end.end_offset < offset else None


def deletion_offset(log: PartitionLog, high_watermark: Offset, offset: Offset) -> Offset:
    """Return the offset at which a log is to begin; ApiError if it may not."""
    if log.config.cleanup_policy == {CleanupPolicy.COMPACT}:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"{log.directory} is compacted, not deleted")
    until = high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= until <= high_watermark:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.directory} cannot begin at {until}: it may up to {high_watermark}",
        )
    return max(until, log.log_start_offset)


class Partition:
    """One replica of one partition.

    `on_progress` is called with the name when the leader or the visible end has changed, and with
    the keys of followers when there is more for them; `on_candidate` for each fetch of an
    out-of-sync follower.
    """

    def __init__(
        self,
        name: TopicPartition,
        topic_id: bytes,
        log: PartitionLog,
        on_progress: Callable[[Hashable], None],
        on_candidate: "Callable[[Partition, BrokerId, int], None]" = lambda *_: None,
        *,
        high_watermark: Offset = FIRST_OFFSET,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch: LeaderEpoch = NO_EPOCH
        """The epoch of the leader that is known, here or elsewhere."""
        self.leader_id = NO_LEADER
        self.in_sync: InSync | None = None
        """A leader's state of its replicas; None otherwise."""
        self.is_alone = False
        """Whether this is the leader and the only replica: then the whole log is committed."""
        self.is_end_confirmed = False
        """Whether the leader of this epoch has responded to a fetch at the end of this log."""
        self.follower_news_count = 0
        """Incremented by every change that a follower's fetch would return."""
        self.traffic = Traffic()
        self._notifier = FollowerKeys()
        self._on_progress = on_progress
        self._on_candidate = on_candidate
        self._high_watermark = max(min(high_watermark, log.end_offset), log.log_start_offset)
        log.producers.acknowledge(self._high_watermark)

    @property
    def high_watermark(self) -> Offset:
        """The offset before which every in-sync replica has everything."""
        return self.log.end_offset if self.is_alone else self._high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """The offset before which no transaction is open."""
        unstable = self.log.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log.log_start_offset), self.high_watermark)

    @property
    def min_isr(self) -> int:
        """How many must be in sync: never more than there are replicas."""
        assert self.in_sync is not None
        return min(self.log.config.min_insync_replicas, len(self.in_sync.followers) + 1)

    @property
    def is_high_watermark_known(self) -> bool:
        """Whether nothing above the high watermark can have been shown by an earlier leader."""
        in_sync = self.in_sync
        return in_sync is None or self.high_watermark >= in_sync.epoch_start_offset

    # -- roles ----------------------------------------------------------------------------------

    def lead(
        self, leader_epoch: LeaderEpoch, assignment: Assignment | None = None, now_ms: int = 0
    ) -> None:
        """Take writes, and stamp them with this epoch; of one replica, if nothing else is said.

        In an epoch in which it leads already, follow a change of replicas or of the ISR.
        """
        here = assignment or Assignment(NO_LEADER, (NO_LEADER,), (NO_LEADER,), 0)
        self._high_watermark = self.high_watermark
        is_first = self.leader_epoch == NO_EPOCH
        known = self.in_sync
        if known is None or leader_epoch != self.leader_epoch:
            self.in_sync = InSync(
                here.broker_id,
                here.replicas,
                here.isr,
                here.partition_epoch,
                epoch_start_offset=self.log.end_offset,
                now_ms=now_ms,
            )
        else:
            known.set_replicas(here.replicas)
            known.decided(here.isr, here.partition_epoch)
        self.leader_epoch = leader_epoch
        self.leader_id = here.broker_id
        self.is_alone = here.replicas == here.isr == (here.broker_id,)
        self.log.producers.acknowledge(self.high_watermark)
        former, self._notifier = self._notifier, FollowerKeys.of(here.broker_id, here.replicas)
        self.raise_high_watermark()
        if is_first:  # only a follower that fetched before the log was created can be waiting
            self._notifier.notify_changed(former, self._on_progress)
        else:
            self._notify(former)

    def follow(self, leader_id: BrokerId, leader_epoch: LeaderEpoch) -> None:
        """Take no writes but this leader's; NO_LEADER if there is none."""
        self._high_watermark = self.high_watermark
        self.is_end_confirmed &= leader_epoch == self.leader_epoch
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.in_sync = None
        self.is_alone = False
        former, self._notifier = self._notifier, FollowerKeys()
        self._notify(former)

    def _notify(self, former: FollowerKeys) -> None:
        """Wake all waiting requests, of former and current followers too."""
        self.follower_news_count += 1
        self._on_progress(self.name)
        self._notifier.notify_changed(former, self._on_progress)

    def check_leader(self, leader_epoch: LeaderEpoch = NO_EPOCH) -> None:
        """Raise ApiError unless this broker leads, in the epoch that the peer believes in."""
        if leader_epoch != self.leader_epoch and leader_epoch != NO_EPOCH:  # noqa: PLR1714 - hot
            self._refuse_epoch(leader_epoch)
        if self.in_sync is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is not led here")

    def _refuse_epoch(self, leader_epoch: LeaderEpoch) -> None:
        if self.leader_epoch == NO_EPOCH:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is not led here")
        is_late = leader_epoch < self.leader_epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if is_late else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise ApiError(code, f"{self.name} is led in epoch {self.leader_epoch}, not {leader_epoch}")

    # -- writing --------------------------------------------------------------------------------

    def append_as_leader(
        self,
        data: memoryview | Validated,
        now_ms: int,
        *,
        origin: Origin = Origin.CLIENT,
        terms: TransactionTerms = ANY_TRANSACTION,
    ) -> Appended:
        """Append one produced batch, and wake the fetches that wait for it."""
        self.check_leader()
        epoch = self.leader_epoch
        appended = self.log.append_as_leader(data, epoch, now_ms, origin=origin, terms=terms)
        if not appended.is_duplicate:
            traffic = self.traffic
            traffic.batches_in += 1
            traffic.records_in += appended.last_offset - appended.base_offset + 1
            traffic.bytes_in += len(data)
            if self.is_alone:
                self.log.producers.acknowledge(self.log.end_offset)
                self._on_progress(self.name)
            else:
                self.follower_news_count += 1
                for key in self._notifier.end:
                    self._on_progress(key)
                self.raise_high_watermark()
        return appended

    def check_enough_in_sync(self) -> None:
        """Raise ApiError NOT_ENOUGH_REPLICAS if acks=all cannot be satisfied."""
        in_sync = self.in_sync
        if not self.is_alone and in_sync is not None and len(in_sync.isr) < self.min_isr:
            detail = f"{self.name} needs {self.min_isr} replicas in sync: {in_sync.isr} are"
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, detail)

    def is_committed(self, end_offset: Offset, leader_epoch: LeaderEpoch) -> bool:
        """Return whether records appended before this offset in an epoch are committed by now.

        ApiError if that cannot be known any more, or if too few replicas are in sync.
        """
        in_sync = self.in_sync
        if in_sync is None or leader_epoch != self.leader_epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is led by another now")
        if self.high_watermark < end_offset:
            return False
        if len(in_sync.isr) < self.min_isr:
            detail = f"{self.name} needs {self.min_isr} replicas in sync: {in_sync.isr} are left"
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, detail)
        return True

    def raise_high_watermark(self) -> bool:
        """Raise the high watermark as far as possible; return whether it rose."""
        in_sync = self.in_sync
        if in_sync is None or self.is_alone:
            return False
        committed = in_sync.committed_to(self.log.end_offset, self.min_isr)
        if committed is None or committed <= self._high_watermark:
            return False
        self._high_watermark = committed
        self.follower_news_count += 1
        self.log.producers.acknowledge(committed)
        self._on_progress(self.name)
        for key in self._notifier.committed:
            self._on_progress(key)
        return True

    # -- following ------------------------------------------------------------------------------

    def append_as_follower(self, data: memoryview, now_ms: int) -> Appended | None:
        """Append the leader's batches; the caller has checked that it still leads."""
        assert self.in_sync is None, "a leader has no leader"
        # Batches of a later epoch may have replaced it in the leader's log since (KAFKA-18723).
        return self.log.append_as_follower(data, now_ms, self.leader_epoch)

    def follow_offsets(self, high_watermark: Offset, log_start_offset: Offset) -> None:
        """Adopt the leader's high watermark, as far as the log goes, and its log start offset."""
        assert self.in_sync is None
        self.is_end_confirmed = True
        log = self.log
        if log_start_offset > log.log_start_offset:
            log.advance_log_start(min(log_start_offset, log.end_offset))
        committed = max(min(high_watermark, log.end_offset), log.log_start_offset)
        # Never lowered: a new leader learns its high watermark later than consumers have used it
        # (KIP-207 keeps ListOffsets from going back meanwhile).
        if committed > self._high_watermark:
            self._high_watermark = committed
            log.producers.acknowledge(committed)
            self._on_progress(self.name)

    def truncate(self, diverging: EpochEnd) -> bool:
        """Truncate records that the leader may lack; return whether any of them was committed.

        That happens only after an unclean election.
        """
        assert self.in_sync is None
        self.log.truncate_to(truncation_offset(self.log, diverging))
        return self._lower_high_watermark()

    def restart_at(self, offset: Offset, now_ms: int) -> bool:
        """Drop the log and restart it at this offset: the leader has nothing that follows it."""
        assert self.in_sync is None
        self.log.restart_at(offset, now_ms)
        is_lost = self._lower_high_watermark()
        self._high_watermark = max(self._high_watermark, offset)
        return is_lost

    def _lower_high_watermark(self) -> bool:
        is_lost = self.log.end_offset < self._high_watermark
        self._high_watermark = min(self._high_watermark, self.log.end_offset)
        return is_lost

    # -- reading --------------------------------------------------------------------------------

    def read(
        self,
        offset: Offset,
        bytes_max: int,
        *,
        leader_epoch: LeaderEpoch = NO_EPOCH,
        last_fetched_epoch: LeaderEpoch = NO_EPOCH,
        is_committed_only: bool = False,
        whole_batch: bool = True,
        is_leader_needed: bool = True,
    ) -> Fetched:
        """Return the records that a consumer may see from an offset on: below the high watermark.

        For read_committed the limit is the last stable offset. If `last_fetched_epoch` differs from
        this log's epoch at `offset - 1`, the result has the divergence and no records. Followers
        also serve requests that need no leader (KIP-392).
        """
        if is_leader_needed or self.in_sync is not None:
            self.check_leader(leader_epoch)
        else:
            self._check_follower(leader_epoch, offset)
        log = self.log
        high_watermark = stable = self.high_watermark
        if log.producers.first_unstable_offset is not None:
            stable = self.last_stable_offset
        if last_fetched_epoch != NO_EPOCH:
            diverging = divergence(log, self.leader_epoch, offset, last_fetched_epoch)
            if diverging is not None:
                return self._diverged(diverging)
        end_offset = stable if is_committed_only else high_watermark
        records = log.read(offset, end_offset, bytes_max, whole_batch=whole_batch)
        aborted = None
        if is_committed_only:
            size = len(records)
            found = log.aborted_transactions(offset, stable, size) if size else ()
            aborted = [(transaction.producer_id, transaction.first_offset) for transaction in found]
        return Fetched(records, high_watermark, stable, log.log_start_offset, self.traffic, aborted)

    def read_as_follower(
        self,
        follower: Follower,
        offset: Offset,
        bytes_max: int,
        *,
        leader_epoch: LeaderEpoch,
        last_fetched_epoch: LeaderEpoch = NO_EPOCH,
        log_start_offset: Offset = NO_OFFSET,
        whole_batch: bool = True,
        asked_ms: int | None = None,
    ) -> Fetched:
        """Return the records for a follower, up to the end of the log, and record its progress.

        A fetch from an offset means that the follower has everything before it, which may raise the
        high watermark.
        """
        progress = self._progress(follower, leader_epoch)
        log = self.log
        if last_fetched_epoch != NO_EPOCH:
            diverging = divergence(log, self.leader_epoch, offset, last_fetched_epoch)
            if diverging is not None:
                return self._diverged(diverging)
        records = log.read(offset, log.end_offset, bytes_max, whole_batch=whole_batch)
        if asked_ms is not None:
            if progress.begins_at(log_start_offset):
                self._on_progress(self.name)  # a DeleteRecords may have waited for this replica
            progress.fetched(offset, log.end_offset, follower.broker_epoch, asked_ms)
            assert self.in_sync is not None
            if progress.broker_id not in self.in_sync.isr:
                self._on_candidate(self, progress.broker_id, asked_ms)
            self.raise_high_watermark()
        return self._found(records)

    def _progress(self, follower: Follower, leader_epoch: LeaderEpoch) -> ReplicaProgress:
        """Return a follower's progress; ApiError unless it is a replica with the current epoch."""
        self.check_leader(leader_epoch)
        assert self.in_sync is not None
        if leader_epoch == NO_EPOCH:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name}: in which epoch?")
        progress = self.in_sync.followers.get(follower.broker_id)
        if progress is None:
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self.name} has no such replica")
        if follower.broker_epoch < progress.broker_epoch:
            detail = f"an earlier life of broker {follower.broker_id}"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, detail)
        return progress

    def _check_follower(self, leader_epoch: LeaderEpoch, offset: Offset) -> None:
        """Raise ApiError if this is no replica, or of another epoch, or cannot know this offset.

        An empty log has no tail to confirm: consumers of a new topic wait here from the start.
        """
        if self.leader_epoch == NO_EPOCH or leader_epoch not in {self.leader_epoch, NO_EPOCH}:
            self._refuse_epoch(leader_epoch)
        start_offset, end_offset = self.log.log_start_offset, self.log.end_offset
        is_unsure = not self.is_end_confirmed and end_offset > start_offset
        if is_unsure or offset > end_offset:  # which its leader may have
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{self.name} is not there yet")

    def _diverged(self, diverging: EpochEnd) -> Fetched:
        end_offset = self.log.end_offset
        return self._found(self.log.read(end_offset, end_offset, 0), diverging)

    def _found(self, records: LogSlice, diverging: EpochEnd | None = None) -> Fetched:
        stable, start = self.last_stable_offset, self.log.log_start_offset
        return Fetched(records, self.high_watermark, stable, start, self.traffic, None, diverging)

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        """Return the largest epoch up to this one and its end; UNKNOWN_END for later epochs."""
        return end_of_epoch(self.log, self.leader_epoch, epoch)

    def is_behind(self, offset: Offset) -> bool:
        """Return whether the records from here to the end need more than one read.

        A read ends at the end of its segment file: a fetch must not wait for more then.
        """
        return offset < self.log.segments.active.base_offset

    def delete_records(self, offset: Offset) -> Offset:
        """Move the log start to this offset, or to the high watermark; return the new start.

        Notifies followers at once.
        """
        self.check_leader()
        self.log.advance_log_start(deletion_offset(self.log, self.high_watermark, offset))
        self._notify(self._notifier)
        return self.log.log_start_offset
