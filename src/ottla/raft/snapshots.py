"""Snapshots of the metadata log: their names, and their first and last batches.

    <20 digits: end offset>-<10 digits: epoch>.checkpoint

The end offset is excluded. A snapshot begins with a control batch with SnapshotHeader, and with
KRaftVersion and Voters if kraft.version is 1 or higher. Data batches follow, and a control batch
with SnapshotFooter. The snapshot of end offset 0 has the voters that the directory was formatted
with.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import LeaderEpoch, Offset
from ottla.raft.voters import VoterSet, voter_set_of
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import Buffer, RecordBatch, batches
from ottla.wire.records.quorum_control import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    control_batch,
    control_records_of,
)
from ottla.wire.schema import Message

SUFFIX: Final = ".checkpoint"
PARTIAL_SUFFIX: Final = ".checkpoint.part"
_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """The point in the log where a snapshot ends: the end offset and the epoch before it."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """The name of the snapshot's file."""
        return f"{self.end_offset:020}-{self.epoch:010}{SUFFIX}"


def snapshot_id_of(file_name: str) -> SnapshotId | None:
    """Return the id of a complete snapshot's file; None for names of other files."""
    found = _NAME.fullmatch(file_name)
    return SnapshotId(int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True, slots=True)
class SnapshotStart:
    """The control records at the begin of a snapshot."""

    last_timestamp_ms: int = 0
    kraft_version: int = 0
    voters: VoterSet | None = None


def snapshot_bytes(
    snapshot_id: SnapshotId, start: SnapshotStart, data: Iterable[Buffer]
) -> bytearray:
    """Return a whole snapshot: its batches are stamped with offsets from 0, and with its epoch."""
    header: list[Message] = [
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=start.last_timestamp_ms)
    ]
    if start.kraft_version > 0:
        assert start.voters is not None, "kraft.version 1 has its voters in the snapshot"
        header.append(KRaftVersionRecord(version=0, k_raft_version=start.kraft_version))
        header.append(start.voters.record())
    content = _control(header, snapshot_id, start, 0)
    next_offset = len(header)
    for buffer in data:
        for batch in batches(bytearray(buffer)):
            batch.restamp(Offset(next_offset), LeaderEpoch(snapshot_id.epoch))
            content += batch.raw
            next_offset = batch.end_offset
    footer: list[Message] = [SnapshotFooterRecord(version=0)]
    return content + _control(footer, snapshot_id, start, next_offset)


def snapshot_start_of(content: Buffer) -> SnapshotStart:
    """Read the first batch of a snapshot; ProtocolError if it is no SnapshotHeader."""
    first = next(batches(content), None)
    records = [] if first is None else [record for _, record in control_records_of(first)]
    if not records or not isinstance(records[0], SnapshotHeaderRecord):
        raise ProtocolError("a snapshot has no header", code=ErrorCode.INVALID_RECORD)
    version, voters = 0, None
    for record in records:
        if isinstance(record, KRaftVersionRecord):
            version = record.k_raft_version
        elif isinstance(record, VotersRecord):
            voters = voter_set_of(record)
    return SnapshotStart(records[0].last_contained_log_timestamp, version, voters)


def snapshot_data_of(content: Buffer) -> list[RecordBatch]:
    """Return the data batches of a whole snapshot; ProtocolError if it has no footer."""
    found = list(batches(content))
    last = control_records_of(found[-1]) if found else []
    if not last or not isinstance(last[-1][1], SnapshotFooterRecord):
        raise ProtocolError("a snapshot has no footer", code=ErrorCode.INVALID_RECORD)
    return [batch for batch in found if not batch.is_control]


def _control(
    records: list[Message], snapshot_id: SnapshotId, start: SnapshotStart, base_offset: int
) -> bytearray:
    return control_batch(
        records,
        base_offset=base_offset,
        leader_epoch=snapshot_id.epoch,
        timestamp_ms=start.last_timestamp_ms,
    )
