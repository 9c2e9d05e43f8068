"""The records by which classic groups and committed offsets are remembered."""

from typing import Final, NamedTuple

from ottla.model.identifiers import ZERO_UUID, LeaderEpoch, Offset
from ottla.wire.coordinator_records.classic_group import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.wire.schema import Message

GROUP_METADATA_VERSION: Final = 3
OFFSET_COMMIT_VERSION: Final = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY: Final = 1
"""The only version that can say when an offset expires; it has no leader epoch and no topic id."""
NEVER: Final = -1
"""The expiry of an offset without one of its own: the broker's retention decides."""


class GroupRecord(NamedTuple):
    """A record to append: its value is written in this version, and None is a tombstone."""

    key: Message
    value: Message | None
    version: int


class CommittedOffset(NamedTuple):
    """How far a group has come in a partition."""

    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NEVER
    topic_id: bytes = ZERO_UUID


def committed_offset(value: OffsetCommitValue | LegacyOffsetCommitValue) -> CommittedOffset:
    """Read a committed offset from its record, of any age."""
    if isinstance(value, LegacyOffsetCommitValue):
        return CommittedOffset(
            Offset(value.offset), LeaderEpoch(-1), value.metadata, value.commit_timestamp
        )
    return CommittedOffset(
        offset=Offset(value.offset),
        leader_epoch=LeaderEpoch(value.leader_epoch),
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp,
        expire_timestamp_ms=value.expire_timestamp,
        topic_id=value.topic_id,
    )


def group_record(group_id: str, value: GroupMetadataValue) -> GroupRecord:
    """Create the record of a group that became stable or empty."""
    return GroupRecord(GroupMetadataKey(group=group_id), value, GROUP_METADATA_VERSION)


def group_tombstone(group_id: str) -> GroupRecord:
    """Create the record that removes a group."""
    return GroupRecord(GroupMetadataKey(group=group_id), None, GROUP_METADATA_VERSION)


def offset_record(
    group_id: str, topic: str, partition: int, committed: CommittedOffset
) -> GroupRecord:
    """Create the record of a committed offset."""
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    has_expiry = committed.expire_timestamp_ms != NEVER
    version = OFFSET_COMMIT_VERSION_WITH_EXPIRY if has_expiry else OFFSET_COMMIT_VERSION
    return GroupRecord(_offset_key(group_id, topic, partition), value, version)


def offset_tombstone(group_id: str, topic: str, partition: int) -> GroupRecord:
    """Create the record that removes a committed offset."""
    return GroupRecord(_offset_key(group_id, topic, partition), None, OFFSET_COMMIT_VERSION)


def _offset_key(group_id: str, topic: str, partition: int) -> OffsetCommitKey:
    return OffsetCommitKey(group=group_id, topic=topic, partition=partition)
