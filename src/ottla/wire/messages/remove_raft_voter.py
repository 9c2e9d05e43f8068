"""RemoveRaftVoter (API 81): remove a voter from the Raft quorum.

A voter is named by its id together with its directory id (KIP-853).
"""

from ottla.wire.schema import Message, int16, int32, string, uuid


class RemoveRaftVoterRequest(Message, versions=(0, 0), flexible_since=0):
    """Take the vote from this controller."""

    cluster_id: str | None = string(nullable_since=0)
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()


class RemoveRaftVoterResponse(Message, versions=(0, 0), flexible_since=0):
    """Whether the voter was removed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, ignorable=True)
