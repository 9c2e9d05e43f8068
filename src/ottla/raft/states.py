"""The states of a replica, and the table of moves between them.

state       | meaning                                            | next state
----------- | -------------------------------------------------- | --------------------------------
UNATTACHED  | follows no leader; asks bootstrap servers for it   | PROSPECTIVE  election timeout
            |                                                    | FOLLOWER     a leader is known
            |                                                    | UNATTACHED   a higher epoch
PROSPECTIVE | asks for PreVotes, in the same epoch               | CANDIDATE    a majority
            |                                                    | FOLLOWER     lost, or a leader
            |                                                    | UNATTACHED   lost
CANDIDATE   | has voted for itself in a new epoch                | LEADER       a majority
            |                                                    | PROSPECTIVE  election timeout
            |                                                    | FOLLOWER, UNATTACHED: a leader
LEADER      | appends records, and counts fetches                | RESIGNED     stop, removal, or
            |                                                    |              check-quorum
            |                                                    | FOLLOWER, UNATTACHED: an epoch
RESIGNED    | was leader; votes for no replica in this epoch     | UNATTACHED   election timeout,
            |                                                    |              epoch + 1
            |                                                    | FOLLOWER, UNATTACHED: an epoch
FOLLOWER    | fetches from a leader                              | PROSPECTIVE  fetch timeout
            |                                                    | FOLLOWER, UNATTACHED: an epoch

A start enters any state but LEADER and PROSPECTIVE. The epoch, the vote and the leader are in
`ElectionState`; in one epoch, a vote and a leader never change once they are known.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from ottla.raft.actions import Node
from ottla.raft.snapshots import SnapshotId
from ottla.raft.voters import ReplicaKey, Voter, VoterSet
from ottla.wire.schema import Message


class Role(Enum):
    """The states; see the table above."""

    UNATTACHED = auto()
    PROSPECTIVE = auto()
    CANDIDATE = auto()
    LEADER = auto()
    RESIGNED = auto()
    FOLLOWER = auto()


UNATTACHED, PROSPECTIVE, CANDIDATE, LEADER, RESIGNED, FOLLOWER = Role
MOVES: Final = {
    UNATTACHED: (UNATTACHED, PROSPECTIVE, FOLLOWER),
    PROSPECTIVE: (CANDIDATE, FOLLOWER, UNATTACHED),
    CANDIDATE: (LEADER, PROSPECTIVE, FOLLOWER, UNATTACHED),
    LEADER: (RESIGNED, FOLLOWER, UNATTACHED),
    RESIGNED: (FOLLOWER, UNATTACHED),
    FOLLOWER: (PROSPECTIVE, FOLLOWER, UNATTACHED),
}
STARTS: Final = (UNATTACHED, CANDIDATE, RESIGNED, FOLLOWER)


@dataclass(slots=True)
class Ballot:
    """The answers to the vote requests of one election."""

    is_pre_vote: bool
    granted: set[ReplicaKey] = field(default_factory=set)
    rejected: set[ReplicaKey] = field(default_factory=set)

    def is_won(self, voters: VoterSet) -> bool:
        """Whether a majority of these voters has granted its vote."""
        return sum(key in self.granted for key in voters.keys) >= voters.majority

    def is_lost(self, voters: VoterSet) -> bool:
        """Whether so many voters refused that a majority is impossible."""
        refused = sum(key in self.rejected for key in voters.keys)
        return len(voters) - refused < voters.majority


@dataclass(slots=True)
class Unattached:
    """See the table above."""

    deadline_ms: int
    role: Role = UNATTACHED


@dataclass(slots=True)
class Nominee:
    """A PROSPECTIVE or a CANDIDATE."""

    role: Role
    deadline_ms: int
    ballot: Ballot
    leader: Node | None = None
    """The leader's address, if the same epoch has a known leader: only for PROSPECTIVE."""


@dataclass(slots=True)
class Resigned:
    """See the table above."""

    deadline_ms: int
    successors: tuple[ReplicaKey, ...]
    """The preferred candidates: the voters by falling end offset."""
    acknowledged: set[ReplicaKey] = field(default_factory=set)
    role: Role = RESIGNED


@dataclass(slots=True)
class Download:
    """A snapshot that is being fetched."""

    snapshot_id: SnapshotId
    position: int = 0


@dataclass(slots=True)
class Follower:
    """See the table above."""

    leader_id: int
    leader: Node
    deadline_ms: int
    """The fetch timeout; EndQuorumEpoch brings it forward."""
    next_update_ms: int
    """The time to look whether the voter set has this replica's present address, or has it."""
    has_fetched: bool = False
    has_told_entry: bool = False
    """With kraft.version 0, whether this leader knows this voter's entry."""
    is_alarmed: bool = False
    """Whether a broken connection has already led to a PreVote since the last fetch."""
    download: Download | None = None
    role: Role = FOLLOWER


@dataclass(slots=True)
class Progress:
    """The fetches of one replica from this leader."""

    end_offset: int = -1
    high_watermark: int = -1
    """The replica's own high watermark; -1 if its version of Fetch does not tell."""
    fetched_at_ms: int | None = None
    caught_up_at_ms: int | None = None
    leader_end_offset: int = -1
    """The leader's end offset at the last fetch."""


class ParkedFetch(NamedTuple):
    """A Fetch that waits for records, or for a higher high watermark."""

    token: object
    request: Message
    key: ReplicaKey
    deadline_ms: int


class VoterCall(NamedTuple):
    """A call of the new address of a voter, before its entry is updated."""

    voter: Voter
    token: object | None
    """None if the leader calls itself."""


class ChangeKind(Enum):
    """The changes of the voter set."""

    ADD = auto()
    REMOVE = auto()
    UPDATE = auto()


@dataclass(slots=True)
class VoterChange:
    """The change of the voter set that a leader has in hand."""

    kind: ChangeKind
    token: object | None
    """None once it has a response."""
    voter: Voter
    deadline_ms: int
    offset: int | None = None
    """The offset of its Voters record; None while the newcomer is asked for its versions."""
    correlation_id: int | None = None
    is_answered_early: bool = False
    """Whether the response is sent when the record is appended, and not when it is committed."""


@dataclass(slots=True)
class Leader:
    """See the table above."""

    epoch_start_offset: int
    check_deadline_ms: int
    high_watermark: int | None = None
    replicas: dict[ReplicaKey, Progress] = field(default_factory=dict)
    heard: set[ReplicaKey] = field(default_factory=set)
    """The voters that have fetched since the last majority did."""
    parked: dict[ReplicaKey, ParkedFetch] = field(default_factory=dict)
    change: VoterChange | None = None
    calls: dict[int, VoterCall] = field(default_factory=dict)
    """The calls of voters' new addresses, by correlation id."""
    announced: dict[int, Voter] = field(default_factory=dict)
    """With kraft.version 0, the entries that voters have told, by id."""
    next_update_ms: int = 0
    """The time to look whether the voter set has this leader's present address."""
    began_ms: dict[ReplicaKey, int] = field(default_factory=dict)
    """The times of the last BeginQuorumEpoch requests."""
    role: Role = LEADER


State = Unattached | Nominee | Leader | Resigned | Follower
