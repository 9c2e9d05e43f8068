"""Control records of the metadata log: leader changes, snapshot ends, kraft.version, voters.

    key   := version int16, type int16
    value := a message that begins with its version as int16, which is also a field

The writers of Kafka put several of these records in one control batch.
"""

from collections.abc import Sequence
from struct import Struct as Layout
from typing import Final

from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.reading import decode
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.control import ControlType
from ottla.wire.records.record import Record, records_of
from ottla.wire.schema import Message, Struct, array, int16, int32, int64, string, struct, uint16
from ottla.wire.schema import uuid as uuid_field
from ottla.wire.writing import encode

_KEY: Final = Layout(">hh")
_KEY_VERSION: Final = 0
_VERSION: Final = Layout(">h")


class LeaderChangeVoter(Struct):
    """A voter of the leader's voter set."""

    voter_id: int = int32()
    voter_directory_id: bytes = uuid_field(since=1)


class LeaderChangeMessage(Message, versions=(0, 1), flexible_since=0):
    """A new leader, its voter set, and the voters that elected it."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)
    granting_voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)


class SnapshotHeaderRecord(Message, versions=(0, 0), flexible_since=0):
    """The begin of a snapshot."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Message, versions=(0, 0), flexible_since=0):
    """The end of a snapshot."""

    version: int = int16()


class KRaftVersionRecord(Message, versions=(0, 0), flexible_since=0):
    """The finalized level of the feature kraft.version."""

    version: int = int16()
    k_raft_version: int = int16()


class VoterEndpoint(Struct):
    """An address of a voter, on one listener."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    """The levels of kraft.version that a voter supports."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


class VotersRecordVoter(Struct):
    """A voter, its directory, addresses and versions."""

    voter_id: int = int32()
    voter_directory_id: bytes = uuid_field()
    endpoints: list[VoterEndpoint] = array(VoterEndpoint)
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class VotersRecord(Message, versions=(0, 0), flexible_since=0):
    """The voter set from this record on."""

    version: int = int16()
    voters: list[VotersRecordVoter] = array(VotersRecordVoter)


QUORUM_RECORDS: Final[dict[ControlType, type[Message]]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
_TYPE_BY_CLASS: Final = {cls: kind for kind, cls in QUORUM_RECORDS.items()}
_NUMBERS: Final = {kind.value: kind for kind in QUORUM_RECORDS}


def control_batch(
    records: Sequence[Message], *, base_offset: int, leader_epoch: int, timestamp_ms: int
) -> bytearray:
    """Build one control batch of at least one record; each is written in its own `version`."""
    builder = BatchBuilder(is_control=True, base_offset=base_offset, leader_epoch=leader_epoch)
    for record in records:
        key = _KEY.pack(_KEY_VERSION, _TYPE_BY_CLASS[type(record)])
        version: int = record.version  # type: ignore[attr-defined]  # all of them have it
        builder.append(timestamp_ms, key, encode(record, version))
    return builder.build()


def control_records_of(batch: RecordBatch) -> list[tuple[int, Message]]:
    """Read the offsets and the records of a control batch; unknown types are left out.

    ProtocolError for records that are not well formed. Records of a version newer than the known
    ones are read as the newest known version would be, if their bytes allow it.
    """
    if not batch.is_control:
        return []
    found = ((record.offset, _record(batch, record)) for record in records_of(batch))
    return [(offset, message) for offset, message in found if message is not None]


def _record(batch: RecordBatch, record: Record) -> Message | None:
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size:
        raise _invalid(batch, f"has a key of {len(key)} bytes where {_KEY.size} are needed")
    _, number = _KEY.unpack_from(key)
    if number not in _NUMBERS:
        return None
    cls = QUORUM_RECORDS[_NUMBERS[number]]
    if len(value) < _VERSION.size:
        raise _invalid(batch, f"has a {cls.__name__} of {len(value)} bytes")
    (version,) = _VERSION.unpack_from(value)
    if version < 0:
        raise _invalid(batch, f"has a {cls.__name__} of version {version}")
    return decode(cls, min(version, cls.versions[1]), memoryview(value))


def _invalid(batch: RecordBatch, detail: str) -> ProtocolError:
    text = f"control batch at offset {batch.base_offset} {detail}"
    return ProtocolError(text, code=ErrorCode.INVALID_RECORD)
