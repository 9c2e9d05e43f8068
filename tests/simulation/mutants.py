"""Bugs of a cluster, from Kafka's history or made up: the checkers must find each.

Every mutant is named after its behaviour; the table in `test_mutants.py` says how soon it is found,
and which mutants have tests of their own.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import pytest

from ottla.broker.hosting.metadata_applier import MetadataApplier
from ottla.broker.metadata_store.zookeeper import controller_term
from ottla.broker.metadata_store.zookeeper.store import ZooKeeperMetadataStore
from ottla.broker.startup.lost_tail import LostTail
from ottla.environment.disk import Disk
from ottla.machines.controller import in_sync
from ottla.machines.controller.leadership import Leadership
from ottla.machines.controller.partition_change import PartitionChange
from ottla.replication import partition
from ottla.replication.in_sync import InSync
from ottla.replication.partition import Partition
from ottla.storage.files.checkpoints import CLEAN_SHUTDOWN_FILE
from ottla.storage.log.flush import Flush
from ottla.storage.log.leader_epochs import UNKNOWN_END, EpochEnd, LeaderEpochs
from ottla.storage.log.log import PartitionLog
from ottla.storage.log_dirs import log_dir
from ottla.storage.log_dirs.log_dir import OPENING_FILE, LastStop, LogDir, begin_opening

Mutant = Callable[[], AbstractContextManager[None]]


@contextmanager
def patched(owner: Any, name: str, wrong: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, wrong)
        yield


# -- followers -------------------------------------------------------------------------------------


def truncating_to_the_high_watermark() -> AbstractContextManager[None]:
    """A new follower truncates its log to its high watermark, as before KIP-101."""
    follow = Partition.follow

    def cutting(self: Partition, leader_id: int, leader_epoch: int) -> None:
        follow(self, leader_id, leader_epoch)
        self.log.truncate_to(self.high_watermark)

    return patched(Partition, "follow", cutting)


@contextmanager
def trusting_the_first_larger_epoch() -> Iterator[None]:
    """A leader returns the end of the requested epoch, and a follower truncates there: KIP-279."""
    end_of_epoch = partition.end_of_epoch

    def as_asked(log: PartitionLog, leader_epoch: int, epoch: int) -> EpochEnd:
        end = end_of_epoch(log, leader_epoch, epoch)
        return end if end == UNKNOWN_END else EpochEnd(epoch, end.end_offset)

    def cut_there(log: PartitionLog, diverging: EpochEnd) -> int:
        return min(diverging.end_offset, log.end_offset)

    with (
        patched(partition, "end_of_epoch", as_asked),
        patched(partition, "truncation_offset", cut_there),
    ):
        yield


def not_comparing_logs() -> AbstractContextManager[None]:
    """A follower appends after diverging records, if only the offset fits."""
    return patched(partition, "divergence", lambda *_: None)


@contextmanager
def counting_fetches_of_any_epoch() -> Iterator[None]:
    """A leader serves and counts fetches of any epoch, and the follower appends the records.

    That was so before KIP-320.
    """
    append = PartitionLog.append_as_follower

    def append_any(log: PartitionLog, data: memoryview, now_ms: int, _: int = 0) -> object:
        return append(log, data, now_ms)

    with (
        patched(Partition, "_refuse_epoch", lambda *_: None),
        patched(PartitionLog, "append_as_follower", append_any),
    ):
        yield


def not_noting_epochs() -> AbstractContextManager[None]:
    """Only the first epoch of a log is recorded, no later leader's: apache/kafka #5678."""
    note = LeaderEpochs.note

    def note_first(self: LeaderEpochs, epoch: int, start_offset: int) -> None:
        if not self.entries:
            note(self, epoch, start_offset)

    return patched(LeaderEpochs, "note", note_first)


# -- the ISR ---------------------------------------------------------------------------------------


def committing_on_what_is_only_proposed() -> AbstractContextManager[None]:
    """A leader counts only its proposed ISR, before the controller has committed it."""

    def committed_to(self: InSync, leader_end_offset: int, min_isr: int) -> int | None:
        wanted = self.proposed or self.isr
        if len(wanted) < min_isr:
            return None
        ends = [self.followers[one].end_offset for one in wanted if one != self.leader]
        return min([leader_end_offset, *ends])

    return patched(InSync, "committed_to", committed_to)


def forgetting_who_was_proposed() -> AbstractContextManager[None]:
    """A leader counts only the committed ISR, without the members it has proposed."""
    return patched(InSync, "maximal", property(lambda self: self.isr))


def joining_at_the_high_watermark() -> AbstractContextManager[None]:
    """A follower may join without all records from before the leader's epoch: KAFKA-7128."""

    def may_join(self: InSync, broker_id: int, high_watermark: int) -> bool:
        if self.proposed is not None or broker_id in self.isr:
            return False
        return self.followers[broker_id].end_offset >= high_watermark

    return patched(InSync, "may_join", may_join)


def committing_with_too_few() -> AbstractContextManager[None]:
    """The high watermark moves with any number of in-sync replicas, as before KIP-966."""
    return patched(Partition, "min_isr", property(lambda self: 1))


def trusting_who_has_lost_its_tail() -> AbstractContextManager[None]:
    """The last replica leads again, even if it has lost its tail: before KIP-966."""
    return patched(LostTail, "may_be_lost", lambda _: False)


@contextmanager
def letting_an_earlier_life_in() -> Iterator[None]:
    """A follower joins the ISR, though it has restarted since it caught up: before KIP-903."""
    check_members = in_sync._check_members

    def check_without_epochs(
        leadership: Any, state: Any, leader: int, members: Any, wanted: Any
    ) -> None:
        known = [in_sync.BrokerState(broker_id=one.broker_id, broker_epoch=-1) for one in members]
        check_members(leadership, state, leader, known, wanted)

    with patched(in_sync, "_check_members", check_without_epochs):
        yield


# -- the controller --------------------------------------------------------------------------------


def leaving_the_fenced_in_sync() -> AbstractContextManager[None]:
    """A fenced broker stays in the ISR, and keeps its leaderships."""
    return patched(Leadership, "leave", lambda *_, **__: [])


def keeping_who_may_lead() -> AbstractContextManager[None]:
    """Former ISR members stay electable until all replicas are in sync, with any min ISR."""
    candidates = PartitionChange._out_of_sync_candidates

    def of_all(self: PartitionChange) -> tuple[tuple[int, ...], tuple[int, ...]]:
        self.min_isr = len(self.replicas)
        return candidates(self)

    return patched(PartitionChange, "_out_of_sync_candidates", of_all)


def leading_on_without_a_session() -> AbstractContextManager[None]:
    """A leader does not resign when its session is lost."""
    return patched(MetadataApplier, "resign", lambda _: None)


def registering_without_stepping_down() -> AbstractContextManager[None]:
    """A new session begins, and the loss of the previous session is not reported."""
    return patched(ZooKeeperMetadataStore, "on_session_lost", lambda *_: None)


def not_telling_who_waits() -> AbstractContextManager[None]:
    """Requests that wait for replicas are not woken when the session lease may have expired."""
    return patched(ZooKeeperMetadataStore, "on_doubt", lambda *_: None)


def deciding_on_whatever_zookeeper_says() -> AbstractContextManager[None]:
    """A term does not end when ZooKeeper refuses its writes."""

    async def commit(self: controller_term.ControllerTerm, commits: Any) -> None:
        for one in commits:
            with suppress(controller_term.ZooKeeperError):
                await self._session.commit([self._fence, *one])
            self._check_office()

    return patched(controller_term.ControllerTerm, "_commit", commit)


def writing_without_the_epoch() -> AbstractContextManager[None]:
    """A controller's commits do not check its epoch."""

    async def commit(self: controller_term.ControllerTerm, commits: Any) -> None:
        for one in commits:
            try:
                await self._session.commit(list(one))
            except controller_term.ZooKeeperError as error:
                self.end(repr(error))
            self._check_office()

    return patched(controller_term.ControllerTerm, "_commit", commit)


# -- disks -----------------------------------------------------------------------------------------


def keeping_the_mark_of_a_clean_stop() -> AbstractContextManager[None]:
    """The clean shutdown marker stays while logs are written to: KAFKA-10471."""

    def keep(disk: Disk, folder: str, notes: list[str]) -> LastStop:
        last_stop = begin_opening(disk, folder, notes)
        if last_stop.is_clean:
            disk.rename(f"{folder}/{OPENING_FILE}", f"{folder}/{CLEAN_SHUTDOWN_FILE}")
            disk.sync_directory(folder)
        return last_stop

    return patched(log_dir, "begin_opening", keep)


def noting_what_is_not_flushed() -> AbstractContextManager[None]:
    """The recovery point is where the log ends, flushed or not."""
    begin_checkpoint = LogDir.begin_checkpoint

    def ahead(self: LogDir) -> Any:
        for hosted in self.hosted.values():
            hosted.log.recovery_point = hosted.log.end_offset
        return begin_checkpoint(self)

    return patched(LogDir, "begin_checkpoint", ahead)


def trying_again_to_sync() -> AbstractContextManager[None]:
    """A failed sync is tried once more, and its success believed: fsyncgate."""
    run = Flush.run

    def twice(self: Flush) -> None:
        run(self)
        if self.failure is not None:
            self.failure = None
            run(self)

    return patched(Flush, "run", twice)


MUTANTS: dict[str, Mutant] = {
    one.__name__: one
    for one in (
        truncating_to_the_high_watermark,
        trusting_the_first_larger_epoch,
        not_comparing_logs,
        counting_fetches_of_any_epoch,
        not_noting_epochs,
        committing_on_what_is_only_proposed,
        forgetting_who_was_proposed,
        joining_at_the_high_watermark,
        committing_with_too_few,
        trusting_who_has_lost_its_tail,
        letting_an_earlier_life_in,
        leaving_the_fenced_in_sync,
        keeping_who_may_lead,
        leading_on_without_a_session,
        registering_without_stepping_down,
        writing_without_the_epoch,
        deciding_on_whatever_zookeeper_says,
        keeping_the_mark_of_a_clean_stop,
        noting_what_is_not_flushed,
    )
}
