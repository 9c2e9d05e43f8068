"""Metadata records, byte for byte as Kafka keeps them."""

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.metadata.record_frames import (
    as_written,
    batch_of,
    batches_of,
    decode_record,
    encode_record,
    metadata_records_of,
)
from ottla.metadata.records import (
    LEADER_UNCHANGED,
    RECORD_BY_KIND,
    UNASSIGNED_DIRECTORY,
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnknownRecord,
    UnregisterBrokerRecord,
    ZkMigrationStateRecord,
)
from ottla.metadata.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    QuotaEntity,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.model.error_code import ErrorCode
from ottla.wire.primitives import uvarint
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.writing import encode
from tests.examples import examples
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
        UnregisterBrokerRecord(broker_id=5, broker_epoch=6),
        "01 01 00 00 00 00 05 00 00 00 00 00 00 00 06 00",
    ),
    (
        RegisterControllerRecord(
            controller_id=7,
            incarnation_id=ID,
            zk_migration_ready=True,
            end_points=[BrokerEndpoint(name="C", host="h", port=65535, security_protocol=1)],
            features=[BrokerFeature(name="f", min_supported_version=1, max_supported_version=2)],
        ),
        f"01 1b 00 00 00 00 07 {ID_HEX} 01 02 02 43 02 68 ff ff 00 01 00"
        " 02 02 66 00 01 00 02 00 00",
    ),
    (FenceBrokerRecord(id=5, epoch=6), "01 07 00 00 00 00 05 00 00 00 00 00 00 00 06 00"),
    (UnfenceBrokerRecord(id=5, epoch=6), "01 08 00 00 00 00 05 00 00 00 00 00 00 00 06 00"),
    (ClearElrRecord(topic_name="t"), "01 1c 00 02 74 00"),
    (NoOpRecord(), "01 14 00 00"),
    (ZkMigrationStateRecord(zk_migration_state=3), "01 15 00 03 00"),
    (BeginTransactionRecord(name="n"), "01 17 00 01 00 02 02 6e"),
    (BeginTransactionRecord(), "01 17 00 00"),
    (EndTransactionRecord(), "01 18 00 00"),
    (AbortTransactionRecord(reason="r"), "01 19 00 01 00 02 02 72"),
    (
        DelegationTokenRecord(
            owner="o",
            requester="q",
            renewers=["x", "y"],
            issue_timestamp=1,
            max_timestamp=2,
            expiration_timestamp=3,
            token_id="i",
        ),
        "01 0a 00 02 6f 02 71 03 02 78 02 79 00 00 00 00 00 00 00 01"
        " 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 03 02 69 00",
    ),
    (RemoveDelegationTokenRecord(token_id="i"), "01 1a 00 02 69 00"),
    (
        UserScramCredentialRecord(
            name="u",
            mechanism=2,
            salt=b"\x01\x02",
            stored_key=b"\x03",
            server_key=b"\x04",
            iterations=4096,
        ),
        "01 0b 00 02 75 02 03 01 02 02 03 02 04 00 00 10 00 00",
    ),
    (RemoveUserScramCredentialRecord(name="u", mechanism=2), "01 16 00 02 75 02 00"),
    (
        ClientQuotaRecord(
            entity=[
                QuotaEntity(entity_type="user", entity_name="u"),
                QuotaEntity(entity_type="client-id", entity_name=None),
            ],
            key="k",
            value=1.5,
        ),
        "01 0e 00 03 05 75 73 65 72 02 75 00 0a 63 6c 69 65 6e 74 2d 69 64 00 00"
        " 02 6b 3f f8 00 00 00 00 00 00 00 00",
    ),
    (
        AccessControlEntryRecord(
            id=ID,
            resource_type=2,
            resource_name="t",
            pattern_type=3,
            principal="User:a",
            host="*",
            operation=4,
            permission_type=5,
        ),
        f"01 12 00 {ID_HEX} 02 02 74 03 07 55 73 65 72 3a 61 02 2a 04 05 00",
    ),
    (RemoveAccessControlEntryRecord(id=ID), f"01 13 00 {ID_HEX} 00"),
    (
        BrokerRegistrationChangeRecord(broker_id=5, broker_epoch=6, fenced=1),
        "01 11 03 00 00 00 05 00 00 00 00 00 00 00 06 01 00 01 01",
    ),
    (
        RegisterBrokerRecord(broker_id=5, rack=None),
        "01 00 04 00 00 00 05 00" + " 00" * 24 + " 01 01 00 01 00 00",
    ),
]


@pytest.mark.parametrize(("record", "written"), VECTORS, ids=name_of)
def test_a_record_looks_as_in_kafka(record: MetadataRecord, written: str) -> None:
    assert encode_record(record).hex(" ") == written
    assert decode_record(bytes.fromhex(written)) == record


def test_every_kind_has_a_vector() -> None:
    assert {type(record) for record, _ in VECTORS} == set(RECORD_BY_KIND.values())


REGISTRATION = RegisterBrokerRecord(
    broker_id=5,
    incarnation_id=ID,
    broker_epoch=6,
    end_points=[BrokerEndpoint(name="P", host="h", port=65535, security_protocol=1)],
    features=[BrokerFeature(name="f", min_supported_version=1, max_supported_version=2)],
    rack="r",
    fenced=False,
    in_controlled_shutdown=True,
    log_dirs=[ID],
    cordoned_log_dirs=[ID],
)
REST_HEX = (
    f"{ID_HEX} 00 00 00 00 00 00 00 06 02 02 50 02 68 ff ff 00 01 00 02 02 66 00 01 00 02 00"
    " 02 72 00"
)
CHANGE = BrokerRegistrationChangeRecord(
    broker_id=5,
    broker_epoch=6,
    fenced=-1,
    in_controlled_shutdown=1,
    log_dirs=[ID],
    cordoned_log_dirs=[],
)
CHANGE_HEX = "00 00 00 05 00 00 00 00 00 00 00 06"


# Written by Kafka 4.3.1's own serializer.
@pytest.mark.parametrize(
    ("record", "level", "written"),
    [
        (REGISTRATION, 7, f"01 00 01 00 00 00 05 {REST_HEX} 01 00"),
        (REGISTRATION, 16, f"01 00 02 00 00 00 05 00 {REST_HEX} 01 00"),
        (REGISTRATION, 29, f"01 00 03 00 00 00 05 00 {REST_HEX} 01 01 00 11 02 {ID_HEX}"),
        (
            REGISTRATION,
            30,
            f"01 00 04 00 00 00 05 00 {REST_HEX} 01 02 00 11 02 {ID_HEX} 01 11 02 {ID_HEX}",
        ),
        (CHANGE, 16, f"01 11 01 {CHANGE_HEX} 02 00 01 ff 01 01 01"),
        (CHANGE, 17, f"01 11 02 {CHANGE_HEX} 03 00 01 ff 01 01 01 02 11 02 {ID_HEX}"),
        (CHANGE, 30, f"01 11 03 {CHANGE_HEX} 04 00 01 ff 01 01 01 02 11 02 {ID_HEX} 03 01 01"),
        (
            PartitionChangeRecord(topic_id=ID, directories=[ID], last_known_elr=[1]),
            22,
            f"01 05 01 ff ff ff ff {ID_HEX} 01 08 11 02 {ID_HEX}",
        ),
        (
            PartitionChangeRecord(topic_id=ID, directories=[ID], leader=1),
            8,
            f"01 05 00 ff ff ff ff {ID_HEX} 01 01 04 00 00 00 01",
        ),
    ],
)
def test_the_level_of_the_cluster_decides_on_the_version(
    record: MetadataRecord, level: int, written: str
) -> None:
    assert encode_record(record, level).hex(" ") == written
    (seen,) = as_written([record], level)
    assert decode_record(bytes.fromhex(written)) == seen


def test_a_record_in_its_newest_version_is_not_copied() -> None:
    assert as_written([REGISTRATION], 30)[0] is REGISTRATION
    topic = TopicRecord(name="t", topic_id=ID)
    assert as_written([topic], 7)[0] is topic


def test_batches_hold_all_records_in_their_order() -> None:
    records = [TopicRecord(name=f"t{number}", topic_id=ID) for number in range(2500)]
    written = [RecordBatch(memoryview(one)) for one in batches_of(records, 30, 1)]
    assert [batch.record_count for batch in written] == [1000, 1000, 500]
    assert [one for batch in written for one in metadata_records_of(batch)] == records


def test_a_damaged_batch_is_refused() -> None:
    raw = batch_of([NoOpRecord()], 30, 1)
    raw[-1] ^= 1
    with pytest.raises(ProtocolError, match="its CRC"):
        metadata_records_of(RecordBatch(memoryview(raw)))


def test_a_record_without_a_value_is_refused() -> None:
    builder = BatchBuilder()
    builder.append(1, None, None)
    with pytest.raises(ProtocolError, match="without a value"):
        metadata_records_of(RecordBatch(memoryview(builder.build())))


def test_a_kind_of_a_later_release_is_told_from_damage() -> None:
    assert decode_record(bytes.fromhex("01 06 00")) == UnknownRecord(kind=6, version=0)
    assert decode_record(bytes.fromhex("01 ff ff 03 02")) == UnknownRecord(kind=65535, version=2)


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


@settings(max_examples=examples(300), deadline=None)
@given(raw=st.binary(max_size=80), kind=st.sampled_from(sorted(RECORD_BY_KIND)))
def test_any_bytes_are_a_record_or_a_protocol_error(raw: bytes, kind: int) -> None:
    for value in (raw, bytes([1, kind, 0]) + raw):
        with suppress(ProtocolError):
            decode_record(value)
