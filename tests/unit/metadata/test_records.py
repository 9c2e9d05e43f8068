"""Metadata records, byte for byte as Kafka keeps them."""

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.metadata.records import (
    LEADER_UNCHANGED,
    RECORD_BY_KIND,
    UNASSIGNED_DIRECTORY,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    decode_record,
    encode_record,
)
from ottla.model.error_code import ErrorCode
from ottla.wire.primitives import uvarint
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.writing import encode
from tests.message_strategies import name_of, values_of

ID = bytes(range(16))
ID_HEX = ID.hex(" ")
VECTORS: list[tuple[MetadataRecord, str]] = [
    (
        FeatureLevelRecord(name="metadata.version", feature_level=29),
        "01 0c 00" + " 11 6d 65 74 61 64 61 74 61 2e 76 65 72 73 69 6f 6e" + " 00 1d" + " 00",
    ),
    (TopicRecord(name="a.b", topic_id=ID), f"01 02 00 04 61 2e 62 {ID_HEX} 00"),
    (
        PartitionRecord(
            partition_id=2,
            topic_id=ID,
            replicas=[1, 0],
            isr=[1],
            leader=1,
            leader_epoch=3,
            partition_epoch=4,
            directories=[UNASSIGNED_DIRECTORY, ID],
        ),
        f"01 03 02 00 00 00 02 {ID_HEX}"
        " 03 00 00 00 01 00 00 00 00 02 00 00 00 01 01 01"
        " 00 00 00 01 00 00 00 03 00 00 00 04"
        f" 03 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 {ID_HEX} 00",
    ),
    (
        PartitionRecord(topic_id=ID, leader_recovery_state=1, eligible_leader_replicas=[7]),
        f"01 03 02 ff ff ff ff {ID_HEX} 01 01 01 01 ff ff ff ff ff ff ff ff ff ff ff ff 01"
        " 02 00 01 01 01 05 02 00 00 00 07",
    ),
    (
        ConfigRecord(resource_type=4, resource_name="", name="k", value="1"),
        "01 04 00 04 01 02 6b 02 31 00",
    ),
    (
        ConfigRecord(resource_type=2, resource_name="t", name="k", value=None),
        "01 04 00 02 02 74 02 6b 00 00",
    ),
    (
        # Written by a controller of version 4.3.1 when its only broker stopped.
        PartitionChangeRecord(
            partition_id=0,
            topic_id=ID,
            isr=[],
            leader=-1,
            eligible_leader_replicas=[1],
            last_known_elr=[1],
        ),
        f"01 05 02 00 00 00 00 {ID_HEX}"
        " 04 00 01 01 01 04 ff ff ff ff 06 05 02 00 00 00 01 07 05 02 00 00 00 01",
    ),
    (
        PartitionChangeRecord(partition_id=1, topic_id=ID, directories=[ID]),
        f"01 05 02 00 00 00 01 {ID_HEX} 01 08 11 02 {ID_HEX}",
    ),
    (RemoveTopicRecord(topic_id=ID), f"01 09 00 {ID_HEX} 00"),
    (
        ProducerIdsRecord(broker_id=1, broker_epoch=13, next_producer_id=1000),
        "01 0f 00 00 00 00 01 00 00 00 00 00 00 00 0d 00 00 00 00 00 00 03 e8 00",
    ),
    (
        RegisterBrokerRecord(
            broker_id=5,
            incarnation_id=ID,
            broker_epoch=6,
            end_points=[BrokerEndpoint(name="P", host="h", port=65535, security_protocol=1)],
            features=[BrokerFeature(name="f", min_supported_version=1, max_supported_version=2)],
            rack="r",
            fenced=False,
            log_dirs=[ID],
        ),
        f"01 00 03 00 00 00 05 00 {ID_HEX} 00 00 00 00 00 00 00 06"
        " 02 02 50 02 68 ff ff 00 01 00 02 02 66 00 01 00 02 00 02 72 00 00"
        f" 01 00 11 02 {ID_HEX}",
    ),
    (
        UnregisterBrokerRecord(broker_id=5, broker_epoch=6),
        "01 01 00 00 00 00 05 00 00 00 00 00 00 00 06 00",
    ),
    (
        BrokerRegistrationChangeRecord(
            broker_id=5, broker_epoch=6, fenced=-1, in_controlled_shutdown=1, log_dirs=[ID]
        ),
        "01 11 02 00 00 00 05 00 00 00 00 00 00 00 06 03 00 01 ff 01 01 01 02 11 02 " + ID_HEX,
    ),
]


@pytest.mark.parametrize(("record", "written"), VECTORS, ids=name_of)
def test_a_record_looks_as_in_kafka(record: MetadataRecord, written: str) -> None:
    assert encode_record(record).hex(" ") == written
    assert decode_record(bytes.fromhex(written)) == record


def test_every_kind_has_a_vector() -> None:
    assert {type(record) for record, _ in VECTORS} == set(RECORD_BY_KIND.values())


def test_an_old_partition_has_no_directories() -> None:
    raw = bytes.fromhex(
        f"01 03 00 00 00 00 00 {ID_HEX} 02 00 00 00 01 02 00 00 00 01 01 01"
        " 00 00 00 01 00 00 00 00 00 00 00 00 00"
    )
    record = decode_record(raw)
    assert isinstance(record, PartitionRecord)
    assert (record.replicas, record.directories) == ([1], [])


def test_a_change_that_changes_nothing_says_so_by_its_defaults() -> None:
    record = decode_record(bytes.fromhex(f"01 05 00 00 00 00 00 {ID_HEX} 00"))
    assert isinstance(record, PartitionChangeRecord)
    assert (record.leader, record.isr, record.replicas) == (LEADER_UNCHANGED, None, None)


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        (kind, version)
        for kind, cls in RECORD_BY_KIND.items()
        for version in range(cls.versions[0], cls.versions[1] + 1)
    ],
)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_version_of_every_kind_is_read_back(
    kind: int, version: int, data: st.DataObject
) -> None:
    record = data.draw(values_of(RECORD_BY_KIND[kind], version))
    raw = uvarint(1) + uvarint(kind) + uvarint(version) + encode(record, version)
    assert decode_record(raw) == record
    if version == type(record).versions[1]:
        assert encode_record(record) == raw


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ("", "a metadata record of 0 bytes has no whole frame"),
        ("01 02", "a metadata record of 2 bytes has no whole frame"),
        ("ff ff ff ff ff 01 00 00", "no whole frame"),
        ("00 02 00", "frame version 0, known is 1"),
        ("02 02 00", "frame version 2, known is 1"),
        ("01 06 00", "a metadata record of unknown kind 6"),
        ("01 ff ff 03 00", "a metadata record of unknown kind 65535"),
        ("01 02 01", "TopicRecord of version 1, known are 0 to 0"),
        ("01 02 00 04 61", "TopicRecord v0"),
        (f"01 09 00 {ID_HEX} 00 00", "RemoveTopicRecord v0"),
        (f"01 03 02 00 00 00 02 {ID_HEX} ff ff ff ff 0f", "PartitionRecord v2"),
    ],
)
def test_what_is_no_record_is_refused(raw: str, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint) as refused:
        decode_record(bytes.fromhex(raw))
    assert refused.value.code is ErrorCode.INVALID_RECORD


@settings(max_examples=300, deadline=None)
@given(raw=st.binary(max_size=80), kind=st.sampled_from(sorted(RECORD_BY_KIND)))
def test_any_bytes_are_a_record_or_a_protocol_error(raw: bytes, kind: int) -> None:
    for value in (raw, bytes([1, kind, 0]) + raw):
        with suppress(ProtocolError):
            decode_record(value)
