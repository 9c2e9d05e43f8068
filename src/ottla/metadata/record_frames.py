"""Metadata records as bytes, one by one and in batches.

The value of a record in the metadata log is a frame of three varints, and the message; there is no
key:

    frame version (1) | kind | version of the kind | message
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from ottla.metadata.metadata_version import NEWEST_METADATA_VERSION, record_version
from ottla.metadata.records import RECORD_BY_KIND, MetadataRecord, UnknownRecord
from ottla.model.error_code import ErrorCode
from ottla.wire.primitives import read_uvarint, uvarint
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.reading import decode
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.record import records_of
from ottla.wire.writing import encode

FRAME_VERSION: Final = 1
RECORDS_PER_BATCH: Final = 1000
"""The records of a batch of a snapshot."""
_KIND_BY_RECORD: Final = {record: kind for kind, record in RECORD_BY_KIND.items()}


def encode_record(record: MetadataRecord, metadata_version: int = NEWEST_METADATA_VERSION) -> bytes:
    """Write a record in the version for this level; fields that it does not have are left out."""
    cls = type(record)
    version = _written_version(cls, metadata_version)
    return _prefix(cls, version) + encode(_reduced(record, version), version)


def as_written(
    records: Iterable[MetadataRecord], metadata_version: int
) -> tuple[MetadataRecord, ...]:
    """Return the records as readers of the log will see them if it is written at this level.

    A controller replays these, so that its image equals the images of the others.
    """
    if metadata_version >= NEWEST_METADATA_VERSION:
        return tuple(records)
    return tuple(_reduced(one, record_version(type(one), metadata_version)) for one in records)


def decode_record(value: bytes | memoryview) -> MetadataRecord:
    """Read a record in any version; ProtocolError INVALID_RECORD for other bytes.

    A record of an unknown kind is an UnknownRecord: whether it may be skipped depends on the level
    of the cluster, which `replay` knows.
    """
    data = memoryview(value)
    try:
        frame_version, position = read_uvarint(data, 0)
        kind, position = read_uvarint(data, position)
        version, position = read_uvarint(data, position)
    except (IndexError, ValueError):
        raise _invalid(f"a metadata record of {len(data)} bytes has no whole frame") from None
    if frame_version != FRAME_VERSION:
        raise _invalid(f"frame version {frame_version}, known is {FRAME_VERSION}")
    cls = RECORD_BY_KIND.get(kind)
    if cls is None:
        return UnknownRecord(kind=kind, version=version)
    first, last = cls.versions
    if not first <= version <= last:
        raise _invalid(f"{cls.__name__} of version {version}, known are {first} to {last}")
    try:
        return decode(cls, version, data, position)
    except ProtocolError as error:
        raise _invalid(error.detail) from None


def batch_of(
    records: Iterable[MetadataRecord],
    metadata_version: int,
    now_ms: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Return a batch with these records, of which there is at least one."""
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=leader_epoch)
    for record in records:
        builder.append(now_ms, None, encode_record(record, metadata_version))
    return builder.build()


def batches_of(
    records: Iterable[MetadataRecord], metadata_version: int, now_ms: int
) -> Iterator[bytearray]:
    """Yield batches with all of these records, which may be very many."""
    some: list[MetadataRecord] = []
    for record in records:
        some.append(record)
        if len(some) == RECORDS_PER_BATCH:
            yield batch_of(some, metadata_version, now_ms)
            some = []
    if some:
        yield batch_of(some, metadata_version, now_ms)


def metadata_records_of(batch: RecordBatch) -> list[MetadataRecord]:
    """Read all records of a data batch; ProtocolError if the bytes are damaged, or are none."""
    batch.check_crc()
    found = []
    for record in records_of(batch):
        if record.value is None:
            raise _invalid("a metadata record without a value")
        found.append(decode_record(record.value))
    return found


@cache
def _written_version(cls: type[MetadataRecord], metadata_version: int) -> int:
    return record_version(cls, metadata_version)


@cache
def _prefix(cls: type[MetadataRecord], version: int) -> bytes:
    return uvarint(FRAME_VERSION) + uvarint(_KIND_BY_RECORD[cls]) + uvarint(version)


def _reduced(record: MetadataRecord, version: int) -> MetadataRecord:
    """Return the record without the fields that this version does not have."""
    cls = type(record)
    if version == cls.versions[1]:
        return record
    present = {one.name: getattr(record, one.name) for one in cls.fields if one.is_present(version)}
    return cls(**present)


def _invalid(detail: str) -> ProtocolError:
    return ProtocolError(detail, ErrorCode.INVALID_RECORD)
