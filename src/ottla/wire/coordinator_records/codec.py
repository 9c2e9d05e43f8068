"""Encodes and decodes keys and values of coordinator records.

A key begins with the two-byte number of its kind of record. A value begins with the two-byte
version of that kind.
"""

from struct import Struct as Layout
from typing import Final, NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.wire.coordinator_records import (
    classic_group,
    consumer_group,
    share_group,
    share_state,
    streams_group,
    transaction_state,
)
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.reading import decode
from ottla.wire.schema import Message
from ottla.wire.writing import encode

_PREFIX: Final = Layout(">h")
_KEY_VERSION: Final = 0


class RecordKind(NamedTuple):
    """The key and the value of one kind of record."""

    key: type[Message]
    value: type[Message]


CONSUMER_OFFSETS: Final = {
    0: RecordKind(classic_group.LegacyOffsetCommitKey, classic_group.LegacyOffsetCommitValue),
    1: RecordKind(classic_group.OffsetCommitKey, classic_group.OffsetCommitValue),
    2: RecordKind(classic_group.GroupMetadataKey, classic_group.GroupMetadataValue),
    3: RecordKind(
        consumer_group.ConsumerGroupMetadataKey, consumer_group.ConsumerGroupMetadataValue
    ),
    4: RecordKind(
        consumer_group.ConsumerGroupPartitionMetadataKey,
        consumer_group.ConsumerGroupPartitionMetadataValue,
    ),
    5: RecordKind(
        consumer_group.ConsumerGroupMemberMetadataKey,
        consumer_group.ConsumerGroupMemberMetadataValue,
    ),
    6: RecordKind(
        consumer_group.ConsumerGroupTargetAssignmentMetadataKey,
        consumer_group.ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: RecordKind(
        consumer_group.ConsumerGroupTargetAssignmentMemberKey,
        consumer_group.ConsumerGroupTargetAssignmentMemberValue,
    ),
    8: RecordKind(
        consumer_group.ConsumerGroupCurrentMemberAssignmentKey,
        consumer_group.ConsumerGroupCurrentMemberAssignmentValue,
    ),
    10: RecordKind(
        share_group.ShareGroupMemberMetadataKey, share_group.ShareGroupMemberMetadataValue
    ),
    11: RecordKind(share_group.ShareGroupMetadataKey, share_group.ShareGroupMetadataValue),
    12: RecordKind(
        share_group.ShareGroupTargetAssignmentMetadataKey,
        share_group.ShareGroupTargetAssignmentMetadataValue,
    ),
    13: RecordKind(
        share_group.ShareGroupTargetAssignmentMemberKey,
        share_group.ShareGroupTargetAssignmentMemberValue,
    ),
    14: RecordKind(
        share_group.ShareGroupCurrentMemberAssignmentKey,
        share_group.ShareGroupCurrentMemberAssignmentValue,
    ),
    15: RecordKind(
        share_group.ShareGroupStatePartitionMetadataKey,
        share_group.ShareGroupStatePartitionMetadataValue,
    ),
    16: RecordKind(
        consumer_group.ConsumerGroupRegularExpressionKey,
        consumer_group.ConsumerGroupRegularExpressionValue,
    ),
    17: RecordKind(streams_group.StreamsGroupMetadataKey, streams_group.StreamsGroupMetadataValue),
    19: RecordKind(
        streams_group.StreamsGroupMemberMetadataKey, streams_group.StreamsGroupMemberMetadataValue
    ),
    20: RecordKind(
        streams_group.StreamsGroupTargetAssignmentMetadataKey,
        streams_group.StreamsGroupTargetAssignmentMetadataValue,
    ),
    21: RecordKind(
        streams_group.StreamsGroupTargetAssignmentMemberKey,
        streams_group.StreamsGroupTargetAssignmentMemberValue,
    ),
    22: RecordKind(
        streams_group.StreamsGroupCurrentMemberAssignmentKey,
        streams_group.StreamsGroupCurrentMemberAssignmentValue,
    ),
    23: RecordKind(streams_group.StreamsGroupTopologyKey, streams_group.StreamsGroupTopologyValue),
}
TRANSACTION_STATE: Final = {
    0: RecordKind(transaction_state.TransactionLogKey, transaction_state.TransactionLogValue),
}
SHARE_GROUP_STATE: Final = {
    0: RecordKind(share_state.ShareSnapshotKey, share_state.ShareSnapshotValue),
    1: RecordKind(share_state.ShareUpdateKey, share_state.ShareUpdateValue),
}


class RecordCodec:
    """Writes and reads the records of one internal topic."""

    def __init__(self, kinds: dict[int, RecordKind]) -> None:
        self._kinds = kinds
        self._number_by_key = {kind.key: number for number, kind in kinds.items()}

    def encode_key(self, key: Message) -> bytes:
        """Write a key, its kind first."""
        return _PREFIX.pack(self._number_by_key[type(key)]) + encode(key, _KEY_VERSION)

    def encode_value(self, value: Message, version: int) -> bytes:
        """Write a value, its version first."""
        return _PREFIX.pack(version) + encode(value, version)

    def decode(self, key: bytes, value: bytes | None) -> tuple[Message, Message | None]:
        """Read a key and its value; a value of None is a tombstone."""
        kind = self._kind_of(key)
        decoded_key = decode(kind.key, _KEY_VERSION, memoryview(key), _PREFIX.size)
        return decoded_key, None if value is None else _decode_value(kind.value, value)

    def _kind_of(self, key: bytes) -> RecordKind:
        number = _prefix(key, "key")
        if number not in self._kinds:
            raise ProtocolError(f"a record key of unknown kind {number}", ErrorCode.INVALID_RECORD)
        return self._kinds[number]


def _decode_value(cls: type[Message], value: bytes) -> Message:
    version = _prefix(value, "value")
    first, last = cls.versions
    if not first <= version <= last:
        raise ProtocolError(
            f"{cls.__name__} of version {version}, known are {first} to {last}",
            ErrorCode.INVALID_RECORD,
        )
    return decode(cls, version, memoryview(value), _PREFIX.size)


def _prefix(data: bytes, what: str) -> int:
    if len(data) < _PREFIX.size:
        raise ProtocolError(f"a record {what} of {len(data)} bytes", ErrorCode.INVALID_RECORD)
    number: int = _PREFIX.unpack_from(data)[0]
    return number
