"""The invariants Q1 to Q11 of a quorum, checked after each step of a simulated replica."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ottla.raft.actions import SendResponse
from ottla.raft.election_state import ElectionState
from ottla.raft.snapshots import SnapshotId, snapshot_data_of, snapshot_start_of
from ottla.raft.states import Leader
from ottla.raft.voters import ReplicaKey, VoterSet, voter_set_of
from ottla.wire.messages.vote import VoteRequest, VoteResponse
from ottla.wire.records.quorum_control import (
    KRaftVersionRecord,
    VotersRecord,
    control_records_of,
)
from ottla.wire.records.record import records_of
from tests.simulation.quorum_disks import Entry, QuorumDisk

if TYPE_CHECKING:
    from tests.simulation.quorum_world import Replica


class Broken(AssertionError):  # noqa: N818 - a finding, not an error of the checker
    """An invariant does not hold."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


def data_chain(chain: int, entry: Entry) -> int:
    """Fold a batch into the image, which is a checksum of all records of data."""
    batch = entry.batch
    return chain if batch.is_control else crc32(bytes(batch.records_view), chain)


def chain_of_snapshot(content: bytes) -> int:
    (batch,) = snapshot_data_of(content)
    (record,) = records_of(batch)
    assert record.value is not None
    return int(record.value)


class QuorumChecks:
    """The history of a whole run, over all lives of all replicas."""

    def __init__(self) -> None:
        self.leaders: dict[int, ReplicaKey] = {}
        self.persisted_leaders: dict[int, int] = {}
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self.epochs: dict[ReplicaKey, int] = {}
        self.appended: dict[tuple[int, int], tuple[bytes, int]] = {}
        self.truth: list[Entry] = []
        self.commit_epochs: list[int] = []
        """The epoch of the leader that committed each batch."""
        self.chains: dict[int, int] = {0: 0}
        """The image at each end of a committed batch."""
        self.committed_voters = VoterSet()
        self.voters_in_force = VoterSet()
        """The voters that the last commit was counted with; their record may be uncommitted."""
        self.sets = 0
        self._voters_of: dict[bytes, tuple[Any, Any]] = {}

    @property
    def truth_end(self) -> int:
        return self.truth[-1].end_offset if self.truth else 0

    # -- elections --------------------------------------------------------------------------------

    def persisted(self, key: ReplicaKey, election: ElectionState) -> None:
        if election.epoch < self.epochs.get(key, 0):
            raise Broken("Q9", f"epoch {election.epoch} of {key} after {self.epochs[key]}")
        self.epochs[key] = election.epoch
        if election.leader_id is not None:
            known = self.persisted_leaders.setdefault(election.epoch, election.leader_id)
            if known != election.leader_id:
                raise Broken("Q1", f"epoch {election.epoch} has two leaders")
        if election.voted is not None:
            self._voted(key, election.epoch, election.voted)

    def _voted(self, key: ReplicaKey, epoch: int, nominee: ReplicaKey) -> None:
        known = self.votes.setdefault((key, epoch), nominee)
        if known != nominee:
            raise Broken("Q2", f"{key} votes for {known} and {nominee} in epoch {epoch}")

    def answered(self, replica: "Replica", action: SendResponse, request: Any) -> None:
        """Check a promise that is about to leave."""
        if not isinstance(request, VoteRequest) or not isinstance(action.response, VoteResponse):
            return
        if not action.response.topics:
            return
        asked = request.topics[0].partitions[0]
        given = action.response.topics[0].partitions[0]
        if given.vote_granted and not asked.pre_vote:
            nominee = ReplicaKey(asked.replica_id, asked.replica_directory_id)
            self._voted(replica.key, asked.replica_epoch, nominee)
            if replica.disk.election.voted != nominee:
                raise Broken("Q2", f"{replica.key} says a vote that is not on its disk")

    # -- the log ----------------------------------------------------------------------------------

    def logged(self, replica: "Replica", entry: Entry) -> None:
        """Check one appended batch against the same offset and epoch elsewhere."""
        entries = replica.disk.entries
        if len(entries) > 1:
            before = entries[-2].epoch
        else:
            start = replica.disk.start_offset
            starts = [key.epoch for key in replica.disk.snapshots if key.end_offset == start]
            before = max(starts, default=0) if entry.base_offset else 0
        place, found = (entry.base_offset, entry.epoch), (entry.raw, before)
        if self.appended.setdefault(place, found) != found:
            raise Broken("Q3", f"two batches at offset {entry.base_offset} of epoch {entry.epoch}")

    def voters_in(self, entry: Entry) -> tuple[Any, Any]:
        """Return the voters and kraft.version of a batch, None where it has none."""
        found = self._voters_of.get(entry.raw)
        if found is None:
            voters, version = None, None
            for _, record in control_records_of(entry.batch):
                if isinstance(record, VotersRecord):
                    voters = voter_set_of(record)
                elif isinstance(record, KRaftVersionRecord):
                    version = record.k_raft_version
            found = self._voters_of[entry.raw] = (voters, version)
        return found

    def log_changed(self, replica: "Replica") -> None:
        """Check that the voter set in memory is the last set in the log."""
        core = replica.machine.core
        if core.voters != self.voters_on(replica.disk):
            raise Broken("Q8", f"{replica.key} has voters {core.voters.keys}, its log others")
        sets = [one for _, one in core.history.voter_sets if one]
        for old, new in pairwise(sets):
            if not new.is_one_change_from(old):
                raise Broken("Q8", f"voters {old.keys} are followed by {new.keys}")

        state = replica.machine.state
        if not isinstance(state, Leader):
            return
        mark = state.epoch_start_offset if state.high_watermark is None else state.high_watermark
        own = [at for at, _ in core.history.voter_sets if at >= mark]
        if len(own) > 1 or (state.high_watermark is None and own and own[0] > mark + 2):
            raise Broken("Q8", f"leader {replica.key} has two changes of the voters in flight")

    def voters_on(self, disk: QuorumDisk) -> VoterSet:
        """Return the newest voter set of a log."""
        for entry in reversed(disk.entries):
            if (voters := self.voters_in(entry)[0]) is not None:
                return voters
        base = [key for key in disk.snapshots if key.end_offset == disk.start_offset]
        voters = snapshot_start_of(disk.snapshots[base[0]]).voters if base else None
        return voters or VoterSet()

    # -- commits ----------------------------------------------------------------------------------

    def applied(self, replica: "Replica", entry: Entry) -> None:
        """Check one batch that a replica takes as committed."""
        if entry.base_offset < self.truth_end:
            low, high = 0, len(self.truth)
            while low < high:
                middle = (low + high) // 2
                if self.truth[middle].base_offset < entry.base_offset:
                    low = middle + 1
                else:
                    high = middle
            if self.truth[low] != entry:
                raise Broken("Q5", f"{replica.key} applies another batch at {entry.base_offset}")
            return
        if entry.base_offset != self.truth_end:
            raise Broken("Q5", f"{replica.key} applies a batch after a gap")
        self._first_committed(replica, entry)

    def _first_committed(self, replica: "Replica", entry: Entry) -> None:
        # Later actions of the same step may resign, or change the voters: the disk is not so far.
        if self.leaders.get(replica.disk.entries[-1].epoch) != replica.key:
            raise Broken("Q6", f"{replica.key} commits, and does not lead")
        voters = self.voters_on(replica.disk)
        if not self._is_durable(replica.world.replicas, voters, entry):
            raise Broken("Q6", f"offset {entry.base_offset} is not synced on a majority")
        self.voters_in_force = voters
        self.truth.append(entry)
        self.commit_epochs.append(replica.disk.entries[-1].epoch)
        self.chains[entry.end_offset] = data_chain(self.chains[entry.base_offset], entry)
        if self.voters_in(entry)[0] is not None:
            self.committed_voters = self.voters_in(entry)[0]
            self.sets += 1

    @staticmethod
    def _is_durable(replicas: dict[int, "Replica"], voters: VoterSet, entry: Entry) -> bool:
        having = sum(
            key.id in replicas
            and replicas[key.id].disk.directory_id == key.directory_id
            and replicas[key.id].disk.has(entry)
            for key in voters.keys
        )
        return having >= voters.majority

    def is_durable(self, replicas: dict[int, "Replica"]) -> bool:
        """Whether all that is committed is on a majority of the voters.

        While a change of the voters is uncommitted, a majority of the old set or of the new set
        is enough: each has a replica in common with every majority of both.
        """
        if not self.truth or not self.committed_voters:
            return True
        return any(
            all(self._is_durable(replicas, voters, entry) for entry in self.truth[-8:])
            for voters in (self.committed_voters, self.voters_in_force)
        )

    def check_durability(self, replicas: dict[int, "Replica"]) -> None:
        if not self.is_durable(replicas):
            raise Broken("Q7", "a committed batch is on a minority of the disks")

    # -- after each step --------------------------------------------------------------------------

    def stepped(self, replica: "Replica") -> None:
        machine, disk = replica.machine, replica.disk
        core = machine.core
        if disk.election != core.election:
            raise Broken("Q9", f"{replica.key} has {core.election}, its disk {disk.election}")
        if core.outline.end_offset != disk.end_offset:
            raise Broken("Q9", f"{replica.key} ends at {core.outline.end_offset} in memory alone")
        if disk.start_offset and disk.start_offset not in [
            one.end_offset for one in disk.snapshots
        ]:
            raise Broken("Q10", f"{replica.key} has no snapshot at its log start")
        if core.high_watermark < replica.high_watermark_before:
            raise Broken("Q6", f"the high watermark of {replica.key} falls")
        replica.high_watermark_before = core.high_watermark
        state = machine.state
        if isinstance(state, Leader):
            self._check_leader(replica, state)

    def _check_leader(self, replica: "Replica", state: Leader) -> None:
        epoch = replica.machine.epoch
        known = self.leaders.get(epoch)
        if known is None:
            self.leaders[epoch] = replica.key
            self._check_completeness(replica)
        elif known != replica.key:
            raise Broken("Q1", f"{known} and {replica.key} lead epoch {epoch}")
        if replica.led.setdefault(epoch, state) is not state:
            raise Broken("Q1", f"{replica.key} leads epoch {epoch} twice")
        if state.high_watermark is not None and state.high_watermark <= state.epoch_start_offset:
            raise Broken("Q6", "a high watermark at the begin of the epoch")

    def _check_completeness(self, replica: "Replica") -> None:
        disk = replica.disk
        by_offset = {entry.base_offset: entry for entry in disk.entries}
        for entry, epoch in zip(self.truth, self.commit_epochs, strict=True):
            # A late vote may elect a leader of an epoch that is over: it can commit nothing.
            if epoch >= replica.machine.epoch:
                break
            is_covered = entry.end_offset <= disk.start_offset
            if not is_covered and by_offset.get(entry.base_offset) != entry:
                raise Broken("Q4", f"leader {replica.key} lacks offset {entry.base_offset}")

    def installed(self, replica: "Replica", snapshot_id: SnapshotId, content: bytes) -> int:
        """Check a snapshot that replaces a log, and return its image."""
        if isinstance(replica.machine.state, Leader):
            raise Broken("Q10", f"leader {replica.key} loads a snapshot")
        chain = chain_of_snapshot(content)
        if self.chains.get(snapshot_id.end_offset) != chain:
            raise Broken("Q10", f"snapshot {snapshot_id} is not the log up to there")
        return chain
