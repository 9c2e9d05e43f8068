"""DescribeLogDirs (API 35): show the replicas in a broker's log directories.

Concerns only the broker that receives it (KIP-113). Null topics ask for all. Disk capacity and
free space came with version 4 (KIP-827); version 5 marks directories that take no new partitions
(KIP-1066).
"""

from ottla.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string


class DescribableLogDirTopic(Struct):
    """The partitions of one topic to look for."""

    topic: str = string()
    partitions: list[int] = array("int32")


class DescribeLogDirsRequest(Message, versions=(0, 5), flexible_since=2):
    """Show the directories that hold these replicas."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable_since=0)


class DescribeLogDirsPartition(Struct):
    """How large one replica is, and how far behind."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    """The replicas of one topic in the directory."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    """One directory, its room and its replicas."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(default=-1, since=4, ignorable=True)
    usable_bytes: int = int64(default=-1, since=4, ignorable=True)
    is_cordoned: bool = boolean(since=5, ignorable=True)


class DescribeLogDirsResponse(Message, versions=(0, 5), flexible_since=2):
    """The broker's directories."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
