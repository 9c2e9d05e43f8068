"""AddRaftVoter (API 80): add a voter to the Raft quorum.

KIP-853. Since version 1 the sender can ask for a response before the new voter set is
committed.
"""

from ottla.wire.schema import Message, Struct, array, boolean, int16, int32, string, uint16, uuid


class Listener(Struct):
    """An address of the new voter, on one listener."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class AddRaftVoterRequest(Message, versions=(0, 1), flexible_since=0):
    """Let this controller vote."""

    cluster_id: str | None = string(nullable_since=0)
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    ack_when_committed: bool = boolean(default=True, since=1)


class AddRaftVoterResponse(Message, versions=(0, 1), flexible_since=0):
    """Whether the voter was added."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, ignorable=True)
