"""Replicas of the metadata log, and sets of voters.

A replica is named by its id and the id of its directory: a node that comes back with an empty
disk is another replica. Voter sets of kraft.version 0 have no directory ids, and match by id.
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ottla.model.identifiers import ZERO_UUID, uuid_to_text
from ottla.wire.records.quorum_control import (
    KRaftVersionFeature,
    VoterEndpoint,
    VotersRecord,
    VotersRecordVoter,
)

NO_DIRECTORY: Final = ZERO_UUID
VOTERS_RECORD_VERSION: Final = 0


class ReplicaKey(NamedTuple):
    """The name of a replica."""

    id: int
    directory_id: bytes = NO_DIRECTORY

    def __str__(self) -> str:
        return f"{self.id}-{uuid_to_text(self.directory_id)}"


class Endpoint(NamedTuple):
    """An address of a replica, on one listener."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    """One voter: its key, its addresses, and its range of kraft.version."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    min_version: int = 0
    max_version: int = 1

    def supports(self, kraft_version: int) -> bool:
        """Whether this level of kraft.version is in the voter's range."""
        return self.min_version <= kraft_version <= self.max_version


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters, by rising id; empty if this replica knows none."""

    voters: tuple[Voter, ...] = ()

    def __post_init__(self) -> None:
        ids = [voter.key.id for voter in self.voters]
        assert ids == sorted(set(ids)), f"voter ids must rise: {ids}"

    def __len__(self) -> int:
        return len(self.voters)

    @property
    def majority(self) -> int:
        """The least number of voters that decide."""
        return len(self.voters) // 2 + 1

    @property
    def keys(self) -> tuple[ReplicaKey, ...]:
        """The keys of all voters."""
        return tuple(voter.key for voter in self.voters)

    def voter(self, replica_id: int) -> Voter | None:
        """Return the voter with this id."""
        return next((voter for voter in self.voters if voter.key.id == replica_id), None)

    def match(self, key: ReplicaKey) -> Voter | None:
        """Return the voter that this replica is, by id and directory id."""
        voter = self.voter(key.id)
        if voter is None or voter.key.directory_id == NO_DIRECTORY:
            return voter
        return voter if voter.key == key else None

    def has(self, key: ReplicaKey) -> bool:
        """Whether this replica is a voter."""
        return self.match(key) is not None

    def with_voter(self, voter: Voter) -> "VoterSet":
        """Return the set with one more voter; its id must be new."""
        return VoterSet(tuple(sorted((*self.voters, voter), key=lambda one: one.key.id)))

    def without(self, key: ReplicaKey) -> "VoterSet":
        """Return the set without this voter."""
        return VoterSet(tuple(voter for voter in self.voters if voter.key != key))

    def updated(self, voter: Voter) -> "VoterSet":
        """Return the set with other addresses or versions of one voter."""
        return replace(
            self,
            voters=tuple(voter if one.key.id == voter.key.id else one for one in self.voters),
        )

    def is_one_change_from(self, other: "VoterSet") -> bool:
        """Whether the two sets differ by at most one voter, so that their majorities overlap."""
        return len(set(self.keys) ^ set(other.keys)) <= 1

    def is_naming(self, other: "VoterSet") -> bool:
        """Whether this set gives the voters of kraft.version 0 their directory ids."""
        ids = [(key.id, NO_DIRECTORY) for key in self.keys]
        return NO_DIRECTORY not in {key.directory_id for key in self.keys} and ids == [*other.keys]

    def record(self) -> VotersRecord:
        """Return the control record of this set."""
        return VotersRecord(
            version=VOTERS_RECORD_VERSION,
            voters=[
                VotersRecordVoter(
                    voter_id=voter.key.id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[
                        VoterEndpoint(name=one.name, host=one.host, port=one.port)
                        for one in voter.endpoints
                    ],
                    k_raft_version_feature=KRaftVersionFeature(
                        min_supported_version=voter.min_version,
                        max_supported_version=voter.max_version,
                    ),
                )
                for voter in self.voters
            ],
        )


def voter_set_of(record: VotersRecord) -> VoterSet:
    """Return the voter set of a control record. Of voters with the same id, the last counts."""
    found: dict[int, Voter] = {}
    for voter in record.voters:
        feature = voter.k_raft_version_feature
        found[voter.voter_id] = Voter(
            ReplicaKey(voter.voter_id, voter.voter_directory_id),
            tuple(Endpoint(one.name, one.host, one.port) for one in voter.endpoints),
            feature.min_supported_version,
            feature.max_supported_version,
        )
    return VoterSet(tuple(found[key] for key in sorted(found)))
