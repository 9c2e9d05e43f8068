"""Control records of the metadata log have Kafka's bytes: kio reads them."""

import io
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given
from kio.schema.k_raft_version_record.v0 import data as kraft_version_v0
from kio.schema.leader_change_message.v0 import data as leader_change_v0
from kio.schema.leader_change_message.v1 import data as leader_change_v1
from kio.schema.snapshot_footer_record.v0 import data as snapshot_footer_v0
from kio.schema.snapshot_header_record.v0 import data as snapshot_header_v0
from kio.schema.voters_record.v0 import data as voters_v0
from kio.serial import entity_writer

from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.reading import decode
from ottla.wire.records.batch import batch_at
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.control import ControlType, control_type_of
from ottla.wire.records.quorum_control import (
    QUORUM_RECORDS,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    control_batch,
    control_records_of,
)
from ottla.wire.writing import encode
from tests.message_strategies import values_of

if TYPE_CHECKING:
    from ottla.wire.schema import Message

NOW = 1_700_000_000_000
DIRECTORY = bytes(range(16))


def kio_bytes(value: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(value))(buffer, value)
    return buffer.getvalue()


def test_a_leader_change_has_kafkas_bytes() -> None:
    voter = LeaderChangeVoter(voter_id=3, voter_directory_id=DIRECTORY)
    ours = LeaderChangeMessage(version=1, leader_id=3, voters=[voter], granting_voters=[voter])
    their_voter = leader_change_v1.Voter(voter_id=3, voter_directory_id=UUID(bytes=DIRECTORY))
    theirs = leader_change_v1.LeaderChangeMessage(
        version=1, leader_id=3, voters=(their_voter,), granting_voters=(their_voter,)
    )
    assert encode(ours, 1) == kio_bytes(theirs)


def test_an_old_leader_change_has_no_directories() -> None:
    ours = LeaderChangeMessage(
        version=0, leader_id=3, voters=[LeaderChangeVoter(voter_id=3)], granting_voters=[]
    )
    theirs = leader_change_v0.LeaderChangeMessage(
        version=0, leader_id=3, voters=(leader_change_v0.Voter(voter_id=3),), granting_voters=()
    )
    assert encode(ours, 0) == kio_bytes(theirs)


def test_snapshot_ends_and_the_version_have_kafkas_bytes() -> None:
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=NOW)
    their_header = snapshot_header_v0.SnapshotHeaderRecord(
        version=0, last_contained_log_timestamp=NOW
    )
    assert encode(header, 0) == kio_bytes(their_header)
    footer = snapshot_footer_v0.SnapshotFooterRecord(version=0)
    assert encode(SnapshotFooterRecord(version=0), 0) == kio_bytes(footer)
    version = kraft_version_v0.KRaftVersionRecord(version=0, k_raft_version=1)
    assert encode(KRaftVersionRecord(version=0, k_raft_version=1), 0) == kio_bytes(version)


def test_voters_have_kafkas_bytes() -> None:
    theirs = voters_v0.VotersRecord(
        version=0,
        voters=(
            voters_v0.Voter(
                voter_id=7,
                voter_directory_id=UUID(bytes=DIRECTORY),
                endpoints=(voters_v0.Endpoint(name="CONTROLLER", host="a", port=9093),),
                k_raft_version_feature=voters_v0.KRaftVersionFeature(
                    min_supported_version=0, max_supported_version=1
                ),
            ),
        ),
    )
    read = decode(VotersRecord, 0, memoryview(kio_bytes(theirs)))
    assert encode(read, 0) == kio_bytes(theirs)
    assert (read.voters[0].voter_id, read.voters[0].voter_directory_id) == (7, DIRECTORY)


@given(values_of(VotersRecord, 0))
def test_several_records_of_one_batch_are_read_back(voters: VotersRecord) -> None:
    voters.version = 0
    records: list[Message] = [KRaftVersionRecord(version=0, k_raft_version=1), voters]
    raw = control_batch(records, base_offset=40, leader_epoch=5, timestamp_ms=NOW)
    batch = batch_at(raw)
    batch.check_crc()
    assert (batch.base_offset, batch.end_offset, batch.partition_leader_epoch) == (40, 42, 5)
    assert control_type_of(batch) is ControlType.KRAFT_VERSION
    assert control_records_of(batch) == [(40, records[0]), (41, voters)]


def test_a_control_record_of_an_unknown_type_is_left_out() -> None:
    builder = BatchBuilder(is_control=True)
    builder.append(NOW, b"\0\0\0\x63", b"\0\0")
    assert control_records_of(batch_at(builder.build())) == []


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\0", b"\xff\xff\0\0"])
@pytest.mark.parametrize("kind", [ControlType.KRAFT_VOTERS, ControlType.LEADER_CHANGE])
def test_a_broken_control_record_is_refused(kind: ControlType, value: bytes) -> None:
    assert kind in QUORUM_RECORDS
    builder = BatchBuilder(is_control=True)
    builder.append(NOW, bytes((0, 0, 0, kind)), value)
    with pytest.raises(ProtocolError):
        control_records_of(batch_at(builder.build()))


def test_a_control_record_without_a_type_is_refused() -> None:
    builder = BatchBuilder(is_control=True)
    builder.append(NOW, b"\0", b"")
    with pytest.raises(ProtocolError) as caught:
        control_records_of(batch_at(builder.build()))
    assert caught.value.code is ErrorCode.INVALID_RECORD
