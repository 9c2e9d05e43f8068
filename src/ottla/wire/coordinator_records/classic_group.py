"""Classic groups and committed offsets, in `__consumer_offsets`."""

from ottla.wire.schema import Message, Struct, array, int32, int64, octets, string, uuid


class LegacyOffsetCommitKey(Message, versions=(0, 0)):
    """Names a committed offset, as the earliest releases wrote it."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class LegacyOffsetCommitValue(Message, versions=(0, 0)):
    """A committed offset, as the earliest releases wrote it."""

    offset: int = int64()
    metadata: str = string()
    commit_timestamp: int = int64()


class OffsetCommitKey(Message, versions=(0, 0)):
    """Names the offset that a group has committed for a partition."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions=(0, 4), flexible_since=4):
    """The offset that a group has committed for a partition."""

    offset: int = int64()
    leader_epoch: int = int32(default=-1, since=3, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(default=-1, since=1, until=2, ignorable=True)
    topic_id: bytes = uuid(since=4, ignorable=True, tag=0)


class GroupMetadataKey(Message, versions=(0, 0)):
    """Names a classic group."""

    group: str = string()


class MemberMetadata(Struct):
    """A member of a classic group, with its subscription and its assignment."""

    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=3, nullable_since=3, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(default=-1, since=1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = octets()
    assignment: bytes = octets()


class GroupMetadataValue(Message, versions=(0, 4), flexible_since=4):
    """A classic group: its generation, its protocol and its members."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable_since=0)
    leader: str | None = string(nullable_since=0)
    current_state_timestamp: int = int64(default=-1, since=2, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)
