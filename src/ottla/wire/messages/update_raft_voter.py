"""UpdateRaftVoter (API 82): update a voter's entry in the Raft quorum.

A voter sends it to the leader when its endpoints or its supported versions have changed
(KIP-853).
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, string, struct, uint16, uuid


class Listener(Struct):
    """A current address of the voter, on one listener."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    """The Raft protocol versions that the voter can run."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


class UpdateRaftVoterRequest(Message, versions=(0, 0), flexible_since=0):
    """The endpoints and the supported versions of a voter."""

    cluster_id: str | None = string(nullable_since=0)
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class CurrentLeader(Struct):
    """The leader that should get the update."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    host: str = string()
    port: int = int32()


class UpdateRaftVoterResponse(Message, versions=(0, 0), flexible_since=0):
    """Whether the voter was updated."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: CurrentLeader | None = struct(CurrentLeader, tag=0)
