"""ElectLeaders (API 43): elect new leaders of partitions.

Since version 1 the type is 0 for the preferred replica, 1 for an unclean election (KIP-460);
version 0 knew only the former. Null partitions stand for all.
"""

from ottla.wire.schema import Message, Struct, array, int8, int16, int32, string


class TopicPartitions(Struct):
    """The partitions of one topic to hold elections in."""

    topic: str = string()
    partitions: list[int] = array("int32")


class ElectLeadersRequest(Message, versions=(0, 2), flexible_since=2):
    """Hold an election in these partitions."""

    election_type: int = int8(since=1)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable_since=0)
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    """How the election in one partition went."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


class ReplicaElectionResult(Struct):
    """How the elections in one topic went."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Message, versions=(0, 2), flexible_since=2):
    """The outcome of the elections."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
