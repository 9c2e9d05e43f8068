"""InitializeShareGroupState (API 83): set up the stored state of share partitions.

Sent by the group coordinator to the share coordinator (KIP-932). A start offset of -1 leaves
the start undecided.
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, int64, string, uuid


class PartitionData(Struct):
    """The initial state of a share partition."""

    partition: int = int32()
    state_epoch: int = int32()
    start_offset: int = int64()


class InitializeStateData(Struct):
    """The initial states of a topic's share partitions."""

    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class InitializeShareGroupStateRequest(Message, versions=(0, 0), flexible_since=0):
    """Set up these share partitions of the group."""

    group_id: str = string()
    topics: list[InitializeStateData] = array(InitializeStateData)


class PartitionResult(Struct):
    """Whether one share partition was set up."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)


class InitializeStateResult(Struct):
    """Whether one topic's share partitions were set up."""

    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class InitializeShareGroupStateResponse(Message, versions=(0, 0), flexible_since=0):
    """The outcome of the setup."""

    results: list[InitializeStateResult] = array(InitializeStateResult)
