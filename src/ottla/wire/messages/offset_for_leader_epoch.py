"""OffsetForLeaderEpoch (API 23): find where a leader epoch ends in the log.

Followers and consumers use it to notice that a log was truncated (KIP-101, KIP-320). Since
version 2 the sender also states the epoch it takes for current, so that stale ones are fenced.
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, int64, string


class OffsetForLeaderPartition(Struct):
    """The epoch to look up in one partition."""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1, since=2, ignorable=True)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    """The epochs to look up in one topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Message, versions=(0, 4), flexible_since=4):
    """Ask where these epochs end."""

    replica_id: int = int32(default=-2, since=3, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    """The end of an epoch in one partition."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1, since=1, ignorable=True)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    """The ends of epochs in one topic."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Message, versions=(0, 4), flexible_since=4):
    """The ends of the epochs that were asked for."""

    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
