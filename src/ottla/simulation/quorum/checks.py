"""The invariants Q1 to Q11 of a quorum, checked after each step of a simulated replica.

Q1   at most one leader in an epoch, over all disks and all memories
Q2   a replica never grants two votes in an epoch, and says only votes that are on its disk
Q3   batches with the same offset and epoch are equal, and so are their predecessors' epochs
Q4   a leader has every batch that a leader of an earlier epoch has committed, or will commit
Q5   all images at one offset are equal, and a replica applies each batch once, in order
Q6   a batch is committed, told or answered only when it is synced on a majority of the voters in
     force; high watermarks never fall
Q7   every committed batch stays on a majority of the newest committed voters' disks
Q8   consecutive voter sets differ by one voter; the set in memory is the last set in the log; the
     leader has one change in flight at most; a committed address has answered
Q9   epochs never fall on a disk, and the memory has the epoch of the disk
Q10  a snapshot is at every log start above 0, and equals the log up to its end; leaders load none

Q11 belongs to the brokers above the quorum, and Q12, liveness, to the story.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from ottla.raft.actions import SendRecords, SendResponse
from ottla.raft.election_state import ElectionState
from ottla.raft.snapshots import (
    SnapshotId,
    SnapshotStart,
    snapshot_data_of,
    snapshot_start_of,
)
from ottla.raft.states import Leader
from ottla.raft.voters import NO_DIRECTORY, ReplicaKey, VoterSet, voter_set_of
from ottla.simulation.quorum.disk import Entry, QuorumDisk, has_entry
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.wire.messages.vote import VoteRequest, VoteResponse
from ottla.wire.records.quorum_control import (
    KRaftVersionRecord,
    VotersRecord,
    control_records_of,
)
from ottla.wire.records.record import records_of
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.simulation.quorum.replica import Replica


class InvariantError(AssertionError):
    """An invariant does not hold."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


class Controls(NamedTuple):
    """The control records of a batch about voters, None where it has none."""

    voters: VoterSet | None
    version: int | None


def data_chain(chain: int, entry: Entry) -> int:
    """Fold a batch into the image, which is a checksum of all records of data."""
    batch = entry.batch
    return chain if batch.is_control else crc32(bytes(batch.records_view), chain)


def chain_of_snapshot(content: bytes) -> int:
    """Return the image in a snapshot; 0 in a snapshot without data."""
    for batch in snapshot_data_of(content):
        for record in records_of(batch):
            assert record.value is not None, "an image is never deleted"
            return int(record.value)
    return 0


class QuorumChecks:
    """The history of a whole run, over all lives of all replicas."""

    def __init__(self, disks: Mapping[int, QuorumDisk]) -> None:
        self._disks = disks
        self.leaders: dict[int, ReplicaKey] = {}
        self._leader_logs: dict[int, tuple[int, dict[int, Entry]]] = {}
        """By epoch, the log start and the batches with which its leader began."""
        self._persisted_leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, bytes, int], ReplicaKey] = {}
        self._epochs: dict[ReplicaKey, int] = {}
        self._appended: dict[tuple[int, int], tuple[bytes, int]] = {}
        self.truth: list[Entry] = []
        self._commit_epochs: list[int] = []
        """The epoch of the leader that committed each batch."""
        self.chains: dict[int, int] = {0: 0}
        """The image at each end of a committed batch."""
        self._starts: dict[int, SnapshotStart] = {}
        """The voters and kraft.version at each end of a committed batch."""
        self.committed_voters = VoterSet()
        self.voters_in_force = VoterSet()
        """The voters that the last commit was counted with; their record may be uncommitted."""
        self.sets = 0
        self.applied_count = 0
        self._controls: dict[bytes, Controls] = {}

    def form(self, start: SnapshotStart) -> None:
        """Begin with these voters."""
        assert start.voters is not None, "a quorum has voters"
        self.committed_voters = self.voters_in_force = start.voters
        self._starts[0] = start

    @property
    def truth_end(self) -> int:
        """The highest high watermark of the run."""
        return self.truth[-1].end_offset if self.truth else 0

    # -- elections --------------------------------------------------------------------------------

    def persisted(self, key: ReplicaKey, election: ElectionState) -> None:
        """Check an election state that has just reached a disk."""
        if election.epoch < self._epochs.get(key, 0):
            raise InvariantError("Q9", f"epoch {election.epoch} of {key} after {self._epochs[key]}")
        self._epochs[key] = election.epoch
        if election.leader_id is not None:
            known = self._persisted_leaders.setdefault(election.epoch, election.leader_id)
            if known != election.leader_id:
                raise InvariantError("Q1", f"epoch {election.epoch} has two leaders")
        if election.voted is not None:
            self._voted(key, election.epoch, election.voted)

    def _voted(self, key: ReplicaKey, epoch: int, nominee: ReplicaKey) -> None:
        known = self._votes.setdefault((key.id, key.directory_id, epoch), nominee)
        if not _is_same(known, nominee):
            raise InvariantError("Q2", f"{key} votes for {known} and {nominee} in epoch {epoch}")

    def answered(
        self, replica: "Replica", action: SendResponse | SendRecords, request: Message | None
    ) -> None:
        """Check a promise that is about to leave."""
        match action.response:
            case VoteResponse():
                self._check_vote(replica, request, action.response)
            case FetchResponse():
                for topic in action.response.responses:
                    told = topic.partitions[0].high_watermark
                    if told > self.truth_end:
                        raise InvariantError("Q6", f"{replica.key} tells high watermark {told}")
            case AddRaftVoterResponse() | RemoveRaftVoterResponse():
                self._check_change(request, action.response)
            case _:
                pass

    def _check_vote(
        self, replica: "Replica", request: Message | None, response: VoteResponse
    ) -> None:
        if not isinstance(request, VoteRequest) or not response.topics:
            return
        asked = request.topics[0].partitions[0]
        given = response.topics[0].partitions[0]
        if given.vote_granted and not asked.pre_vote:
            nominee = ReplicaKey(asked.replica_id, asked.replica_directory_id)
            self._voted(replica.key, asked.replica_epoch, nominee)
            voted = replica.disk.election.voted
            if voted is None or not _is_same(voted, nominee):
                raise InvariantError("Q2", f"{replica.key} says a vote that is not on its disk")

    def _check_change(
        self, request: Message | None, response: AddRaftVoterResponse | RemoveRaftVoterResponse
    ) -> None:
        """Check that an acknowledged change is committed."""
        if response.error_code:
            return
        if isinstance(request, AddRaftVoterRequest) and request.ack_when_committed:
            key = ReplicaKey(request.voter_id, request.voter_directory_id)
            if key not in self.committed_voters.keys:
                raise InvariantError("Q6", f"{key} is no voter although it was answered")
        if isinstance(request, RemoveRaftVoterRequest):
            key = ReplicaKey(request.voter_id, request.voter_directory_id)
            if key in self.committed_voters.keys:
                raise InvariantError("Q6", f"{key} is a voter although its removal was answered")

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
        if self._appended.setdefault(place, found) != found:
            where = f"offset {entry.base_offset} of epoch {entry.epoch}"
            raise InvariantError("Q3", f"two batches at {where}")

    def controls_in(self, entry: Entry) -> Controls:
        """Return the control records of a batch about voters."""
        found = self._controls.get(entry.raw)
        if found is None:
            voters, version = None, None
            for _, record in control_records_of(entry.batch):
                if isinstance(record, VotersRecord):
                    voters = voter_set_of(record)
                elif isinstance(record, KRaftVersionRecord):
                    version = record.k_raft_version
            found = self._controls[entry.raw] = Controls(voters, version)
        return found

    def log_changed(self, replica: "Replica") -> None:
        """Check that the voter set in memory is the last set in the log."""
        core = replica.machine.core
        if core.voters != self.voters_on(replica.disk):
            raise InvariantError("Q8", f"{replica.key} has other voters than its log")
        sets = [one for _, one in core.history.voter_sets if one]
        for old, new in pairwise(sets):
            if not (new.is_one_change_from(old) or new.is_naming(old)):
                raise InvariantError("Q8", f"voters {old.keys} are followed by {new.keys}")
        state = replica.machine.state
        if not isinstance(state, Leader):
            return
        mark = state.epoch_start_offset if state.high_watermark is None else state.high_watermark
        own = [at for at, _ in core.history.voter_sets if at >= mark]
        if len(own) > 1 or (state.high_watermark is None and own and own[0] > mark + 2):
            raise InvariantError("Q8", f"leader {replica.key} has two changes in flight")

    def voters_on(self, disk: QuorumDisk) -> VoterSet:
        """Return the newest voter set of a log."""
        for entry in reversed(disk.entries):
            if (voters := self.controls_in(entry).voters) is not None:
                return voters
        base = [key for key in disk.snapshots if key.end_offset == disk.start_offset]
        voters = snapshot_start_of(disk.snapshots[base[0]]).voters if base else None
        return voters or disk.static_voters

    # -- commits ----------------------------------------------------------------------------------

    def applied(self, replica: "Replica", entry: Entry) -> None:
        """Check one batch that a replica takes as committed."""
        self.applied_count += 1
        if entry.base_offset < self.truth_end:
            if not has_entry(self.truth, entry):
                raise InvariantError("Q5", f"{replica.key} applies another {entry.base_offset}")
        elif entry.base_offset != self.truth_end:
            raise InvariantError("Q5", f"{replica.key} applies a batch after a gap")
        else:
            self._first_committed(replica, entry)

    def check_image(self, key: ReplicaKey, end_offset: int, chain: int) -> None:
        """Check the image of a replica."""
        if self.chains.get(end_offset) != chain:
            raise InvariantError("Q5", f"{key} has another image at {end_offset}")

    def acknowledged(self, offset: int, value: str) -> None:
        """Check that a value is committed before its writer hears so."""
        found = [one for one in reversed(self.truth) if one.base_offset == offset]
        values = [record.value for entry in found for record in records_of(entry.batch)]
        if values != [value.encode()]:
            raise InvariantError("Q6", f"value {value} is answered, and not at offset {offset}")

    def _first_committed(self, replica: "Replica", entry: Entry) -> None:
        # Later actions of the same step may resign, or change the voters: the disk is not so far.
        epoch = replica.disk.entries[-1].epoch
        if self.leaders.get(epoch) != replica.key:
            raise InvariantError("Q6", f"{replica.key} commits, and does not lead")
        for later, (start_offset, log) in self._leader_logs.items():
            is_covered = entry.end_offset <= start_offset or log.get(entry.base_offset) == entry
            if later > epoch and not is_covered:
                raise InvariantError("Q4", f"leader {later} lacks {entry.base_offset} of {epoch}")
        voters = self.voters_on(replica.disk)
        if not self._is_durable(voters, entry):
            raise InvariantError("Q6", f"offset {entry.base_offset} is not synced on a majority")
        self.voters_in_force = voters
        self.truth.append(entry)
        self._commit_epochs.append(epoch)
        self.chains[entry.end_offset] = data_chain(self.chains[entry.base_offset], entry)
        start, found = self._starts[entry.base_offset], self.controls_in(entry)
        self._starts[entry.end_offset] = SnapshotStart(
            kraft_version=start.kraft_version if found.version is None else found.version,
            voters=found.voters or start.voters,
        )
        if found.voters is not None:
            self.committed_voters = found.voters
            self.sets += 1
            self._check_addresses(replica, found.voters)

    def _check_addresses(self, replica: "Replica", voters: VoterSet) -> None:
        """Check that each voter of a committed set accepts connections at its address."""
        for voter in voters.voters:
            ports = replica.world.replicas[voter.key.id].ports
            if any(endpoint.port not in ports for endpoint in voter.endpoints):
                raise InvariantError("Q8", f"voter {voter.key} has an address of no node")

    def _is_durable(self, voters: VoterSet, entry: Entry) -> bool:
        disks = [self.disk_of(key) for key in voters.keys]
        return sum(disk is not None and disk.has(entry) for disk in disks) >= voters.majority

    def disk_of(self, key: ReplicaKey) -> QuorumDisk | None:
        """Return the disk of a voter, None if it is lost."""
        disk = self._disks.get(key.id)
        is_same = disk is not None and key.directory_id in {NO_DIRECTORY, disk.directory_id}
        return disk if is_same else None

    def check_durability(self, *, is_quick: bool = False) -> None:
        """Check that each committed batch, or the newest, is on a majority of the voters' disks.

        Two sets count. The newest committed set is the rule. While a change is uncommitted, its
        leader commits batches before the change with the new set: {1, 3} is a majority of
        {1, 2, 3}, and not of {1, 2}. That is safe, because each majority of the old set shares
        a replica with it that has the change in its log, and all are bound by the new set then.
        """
        entries = self.truth[-1:] if is_quick else self.truth
        if not any(
            all(self._is_durable(voters, entry) for entry in entries)
            for voters in (self.committed_voters, self.voters_in_force)
        ):
            raise InvariantError("Q7", "a committed batch is on a minority of the disks")

    # -- after each step --------------------------------------------------------------------------

    def stepped(self, replica: "Replica") -> None:
        """Check the memory of a replica against its disk."""
        machine, disk = replica.machine, replica.disk
        core = machine.core
        if disk.election != core.election:
            raise InvariantError("Q9", f"{replica.key} has {core.election}, not {disk.election}")
        if core.outline.end_offset != disk.end_offset:
            where = core.outline.end_offset
            raise InvariantError("Q9", f"{replica.key} ends at {where} in memory alone")
        if disk.start_offset and disk.start_offset not in [
            one.end_offset for one in disk.snapshots
        ]:
            raise InvariantError("Q10", f"{replica.key} has no snapshot at its log start")
        if core.high_watermark < replica.high_watermark_before:
            raise InvariantError("Q6", f"the high watermark of {replica.key} falls")
        replica.high_watermark_before = core.high_watermark
        state = machine.state
        if isinstance(state, Leader):
            self._check_leader(replica, state)

    def _check_leader(self, replica: "Replica", state: Leader) -> None:
        epoch = replica.machine.epoch
        known = self.leaders.get(epoch)
        if known is None:
            self.leaders[epoch] = replica.key
            self._begin(replica, epoch)
        elif known != replica.key:
            raise InvariantError("Q1", f"{known} and {replica.key} lead epoch {epoch}")
        if replica.led.setdefault(epoch, state) is not state:
            raise InvariantError("Q1", f"{replica.key} leads epoch {epoch} twice")
        told = state.high_watermark
        if told is None:
            return
        if told <= state.epoch_start_offset:
            raise InvariantError("Q6", "a high watermark at the begin of the epoch")
        if told != replica.machine.high_watermark:
            raise InvariantError("Q6", f"leader {replica.key} tells another high watermark")

    def _begin(self, replica: "Replica", epoch: int) -> None:
        """Check a new leader's log.

        Raft's rule is about leaders of later epochs. A late vote may elect a leader of an epoch
        that is over, and its log may lack batches of later epochs: it can commit nothing.
        """
        disk = replica.disk
        log = {entry.base_offset: entry for entry in disk.entries}
        self._leader_logs[epoch] = disk.start_offset, log
        for entry, committed in zip(self.truth, self._commit_epochs, strict=True):
            is_covered = entry.end_offset <= disk.start_offset
            if committed < epoch and not is_covered and log.get(entry.base_offset) != entry:
                raise InvariantError("Q4", f"leader {replica.key} lacks {entry.base_offset}")

    # -- snapshots --------------------------------------------------------------------------------

    def installed(self, replica: "Replica", snapshot_id: SnapshotId, content: bytes) -> int:
        """Check a snapshot that replaces a log, and return its image."""
        if isinstance(replica.machine.state, Leader):
            raise InvariantError("Q10", f"leader {replica.key} loads a snapshot")
        self.check_snapshot(snapshot_id, content)
        return chain_of_snapshot(content)

    def check_snapshot(self, snapshot_id: SnapshotId, content: bytes) -> None:
        """Check the image, the voters and kraft.version of a snapshot."""
        chain = chain_of_snapshot(content)
        start, known = snapshot_start_of(content), self._starts.get(snapshot_id.end_offset)
        if known is None or self.chains.get(snapshot_id.end_offset) != chain:
            raise InvariantError("Q10", f"snapshot {snapshot_id} is not the log up to there")
        voters = known.voters if known.kraft_version else None
        if (start.kraft_version, start.voters) != (known.kraft_version, voters):
            raise InvariantError("Q10", f"snapshot {snapshot_id} has other voters than the log")


def _is_same(one: ReplicaKey, other: ReplicaKey) -> bool:
    """Whether two keys may name one replica; a vote of kraft.version 0 has no directory id."""
    directories = {one.directory_id, other.directory_id}
    return one.id == other.id and (len(directories) == 1 or NO_DIRECTORY in directories)
