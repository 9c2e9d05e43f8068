"""The log of the active controller: decisions are applied and proposed at once.

A decision is one batch, or a metadata transaction if it is larger (KIP-868).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from ottla.broker.quorum.metadata_replica import MetadataReplica
from ottla.environment.clock import Clock
from ottla.machines.controller.machine import Controller
from ottla.metadata.log_replay import ImageChange, MetadataLogReplay
from ottla.metadata.metadata_version import (
    METADATA_VERSION_FEATURE,
    NEWEST_METADATA_VERSION,
    TRANSACTIONS_SINCE,
)
from ottla.metadata.record_frames import as_written, encode_record
from ottla.metadata.records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
)
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset
from ottla.wire.records.builder import BatchBuilder

RECORDS_PER_BATCH_MAX: Final = 10_000
BATCH_BYTES_MAX: Final = 8 << 20
DECISION_BYTES_MAX: Final = 64 << 20
"""The limit of a metadata transaction, which waits in the memory of every node for its end."""
Changes: TypeAlias = tuple[ImageChange, ...]


class Batch(NamedTuple):
    """Records that are appended together."""

    records: tuple[MetadataRecord, ...]
    data: bytearray


class ProposedLog:
    """The log of the active controller, as `DecisionRuntime` appends to it."""

    def __init__(
        self,
        replica: MetadataReplica,
        replay: MetadataLogReplay,
        controller: Controller,
        clock: Clock,
        on_written: Callable[[int], None],
    ) -> None:
        self.is_over = False
        self._on_written = on_written
        self._replica = replica
        self._replay = replay
        self._controller = controller
        self._clock = clock
        self._news: asyncio.Future[None] | None = None

    @property
    def end_offset(self) -> Offset:
        """The offset after the last decision."""
        return self._replay.end_offset

    @property
    def proposed_offset(self) -> Offset:
        """The offset after the last decision that the replica has."""
        return self._replay.end_offset

    def catch_up(self) -> None:
        """Go on to the end of the log: a replica appends control batches by itself."""
        if self._replay.end_offset < self._replica.end_offset:
            self._replay.apply((), self._replica.end_offset)
        self._controller.image = self._replay.replayed_image

    def write(self, records: tuple[MetadataRecord, ...]) -> Changes | None:
        """Apply and propose a decision: one batch, or a metadata transaction if it is larger.

        ApiError POLICY_VIOLATION if it is too large; NOT_CONTROLLER, and the office is over, if the
        replica does not lead any more.
        """
        if not records:
            return None
        assert self._replay.end_offset == self._replica.end_offset, "`catch_up` comes first"
        batches = self.batches(records)
        try:
            changes = self.apply(batches)
            self.propose(batches)
        except Exception:
            if self._replay.end_offset != self._replica.end_offset:
                self.end()  # a part is applied, or appended: only going back helps
            raise
        assert self._replay.end_offset == self._replica.end_offset, "a batch has another end"
        return changes

    def apply(self, batches: Sequence[Batch]) -> Changes:
        """Replay batches; later decisions are based on them."""
        changes: Changes = ()
        for batch in batches:
            end_offset = Offset(self._replay.end_offset + len(batch.records))
            changes += tuple(self._replay.apply(batch.records, end_offset))
        self._controller.image = self._replay.replayed_image
        return changes

    def propose(self, batches: Sequence[Batch]) -> None:
        """Append batches to the log of the replica."""
        for batch in batches:
            self._replica.propose(batch.data)
            self._on_written(len(batch.data))

    def batches(self, records: tuple[MetadataRecord, ...]) -> list[Batch]:
        """Return the records of a decision as they are written; ApiError POLICY_VIOLATION."""
        level = _level_of(records, self._controller.image.level_by_feature)
        written = as_written(records, level)
        now_ms = self._clock.now_ms()
        batches = _in_batches(written, level, now_ms)
        if len(batches) == 1:
            return batches
        size_bytes = sum(len(batch.data) for batch in batches)
        if level < TRANSACTIONS_SINCE or size_bytes > DECISION_BYTES_MAX:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"the request would write {len(records)} records of metadata with {size_bytes}"
                " bytes: that is too much for one request",
            )
        wrapped = (BeginTransactionRecord(), *written, EndTransactionRecord())
        return _in_batches(wrapped, level, now_ms)

    def is_committed(self, end_offset: Offset) -> bool:
        """Whether a majority has everything before an offset; never after the office."""
        return not self.is_over and self._replica.high_watermark >= end_offset

    async def committed(self, end_offset: Offset) -> None:
        """Return when a majority has everything before an offset; NOT_CONTROLLER after the end."""
        while not self.is_committed(end_offset):
            if self.is_over:
                raise ApiError(ErrorCode.NOT_CONTROLLER, "this controller is not active any more")
            if self._news is None:
                self._news = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._news)

    def look_again(self) -> None:
        """Wake the callers that wait: the high watermark has risen."""
        if self._news is not None:
            self._news.set_result(None)
            self._news = None

    def end(self) -> None:
        """Commit nothing more."""
        self.is_over = True
        self.look_again()


def _level_of(records: Sequence[MetadataRecord], level_by_feature: Mapping[str, int]) -> int:
    """Return the metadata.version of the log; in an empty log, the level that is set first."""
    level = level_by_feature.get(METADATA_VERSION_FEATURE)
    if level is not None:
        return level
    first = (
        record.feature_level
        for record in records
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION_FEATURE
    )
    return next(first, NEWEST_METADATA_VERSION)


def _in_batches(records: Sequence[MetadataRecord], level: int, now_ms: int) -> list[Batch]:
    batches: list[Batch] = []
    builder, some = BatchBuilder(), list[MetadataRecord]()
    for record in records:
        value = encode_record(record, level)
        is_full = builder.size_bytes + len(value) > BATCH_BYTES_MAX
        if some and (is_full or len(some) == RECORDS_PER_BATCH_MAX):
            batches.append(Batch(tuple(some), builder.build()))
            builder, some = BatchBuilder(), []
        builder.append(now_ms, None, value)
        some.append(record)
    batches.append(Batch(tuple(some), builder.build()))
    return batches
