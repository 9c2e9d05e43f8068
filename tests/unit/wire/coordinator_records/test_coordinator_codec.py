"""Records of internal topics, byte for byte as Kafka keeps them."""

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.wire.coordinator_records.classic_group import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.wire.coordinator_records.codec import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    RecordCodec,
    RecordKind,
)
from ottla.wire.coordinator_records.consumer_group import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from ottla.wire.coordinator_records.transaction_state import TransactionLogKey, TransactionLogValue
from ottla.wire.protocol_error import ProtocolError
from tests.message_strategies import values_of

ALL_KINDS = [
    (kinds, kind)
    for kinds in (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
    for kind in kinds.values()
]


def test_a_committed_offset_looks_as_in_kafka() -> None:
    codec = RecordCodec(CONSUMER_OFFSETS)
    key = codec.encode_key(OffsetCommitKey(group="g", topic="t", partition=2))
    value = codec.encode_value(
        OffsetCommitValue(offset=5, leader_epoch=1, metadata="m", commit_timestamp=9), 3
    )
    assert key == b"\0\x01" + b"\0\x01g" + b"\0\x01t" + b"\0\0\0\x02"
    assert value == b"\0\x03" + bytes(7) + b"\x05" + b"\0\0\0\x01" + b"\0\x01m" + bytes(7) + b"\x09"


def test_a_transaction_is_named_by_its_id() -> None:
    codec = RecordCodec(TRANSACTION_STATE)
    assert codec.encode_key(TransactionLogKey(transactional_id="tx")) == b"\0\0\0\x02tx"


def test_an_old_transaction_has_none_of_the_later_fields() -> None:
    value = TransactionLogValue(
        producer_id=1,
        producer_epoch=2,
        transaction_timeout_ms=3,
        transaction_status=4,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=5,
        transaction_start_timestamp_ms=6,
    )
    raw = RecordCodec(TRANSACTION_STATE).encode_value(value, 0)
    assert raw == struct.pack(">hqhibiqq", 0, 1, 2, 3, 4, -1, 5, 6)


def test_a_consumer_that_never_was_a_classic_member_says_so_by_a_null() -> None:
    codec = RecordCodec(CONSUMER_OFFSETS)
    value = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    raw = codec.encode_value(value, 0)
    assert raw.hex(" ") == "00 00 01 01 01 01 01 01 ff ff ff ff 01 01 00 01 00"
    key = codec.encode_key(ConsumerGroupMemberMetadataKey())
    assert codec.decode(key, raw)[1] == value


@pytest.mark.parametrize(
    ("kinds", "kind"), ALL_KINDS, ids=lambda k: k.key.__name__ if isinstance(k, RecordKind) else ""
)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_kind_is_read_back_in_every_version(
    kinds: dict[int, RecordKind], kind: RecordKind, data: st.DataObject
) -> None:
    codec = RecordCodec(kinds)
    key = data.draw(values_of(kind.key, 0))
    for version in range(kind.value.versions[0], kind.value.versions[1] + 1):
        value = data.draw(values_of(kind.value, version))
        stored = codec.encode_key(key), codec.encode_value(value, version)
        assert codec.decode(*stored) == (key, value)


def test_a_tombstone_has_a_key_and_no_value() -> None:
    codec = RecordCodec(CONSUMER_OFFSETS)
    key = GroupMetadataKey(group="gone")
    assert codec.decode(codec.encode_key(key), None) == (key, None)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        (b"\0", None, "a record key of 1 bytes"),
        (b"\x03\xe7", None, "a record key of unknown kind 999"),
        (b"\0\x02\0\x01g", b"", "a record value of 0 bytes"),
        (b"\0\x02\0\x01g", b"\0\x63", "GroupMetadataValue of version 99, known are 0 to 4"),
        (b"\0\x02\0\x05g", None, "GroupMetadataKey v0"),
    ],
)
def test_what_is_no_such_record_is_refused(key: bytes, value: bytes | None, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        RecordCodec(CONSUMER_OFFSETS).decode(key, value)
