"""A follower's next fetch, and its truncation.

A follower sends the epoch of its last record. If the leader's log differs there, the leader answers
with the largest common epoch and its end; the follower truncates and asks again. So it never
appends behind records that its leader lacks, and never truncates more than necessary.
"""

from typing import Final, NamedTuple

from ottla.model.identifiers import LeaderEpoch, Offset
from ottla.storage.log.leader_epochs import EpochEnd
from ottla.storage.log.log import PartitionLog
from ottla.wire.records.batch import batches

NO_EPOCH: Final = LeaderEpoch(-1)


class NextFetch(NamedTuple):
    """Offset and epoch of a fetch."""

    offset: Offset
    last_fetched_epoch: LeaderEpoch


def next_fetch(log: PartitionLog) -> NextFetch:
    """Ask for the records after the end of the log, with the epoch of its last record."""
    latest = log.epochs.latest_epoch
    return NextFetch(log.end_offset, NO_EPOCH if latest is None else latest)


def beginning_before(log: PartitionLog, data: memoryview) -> int | None:
    """Return the offset at which a log must restart to append these batches; None if it need not.

    A leader whose log start is in the middle of a batch sends the whole batch.
    """
    if log.log_start_offset < log.end_offset:
        return None
    first = next(batches(data), None)
    is_within = first is not None and first.base_offset < log.end_offset <= first.last_offset
    return first.base_offset if first is not None and is_within else None


def truncation_offset(log: PartitionLog, diverging: EpochEnd) -> Offset:
    """Return the truncation offset: nothing is left that the leader may lack.

    The leader has sent its largest epoch up to ours, with its end. If this log has that epoch too,
    both agree up to the smaller end. If not, everything after the last smaller epoch has to go, and
    the next fetch finds the rest (KIP-279).
    """
    own = log.epochs.end_offset_for(diverging.epoch, log.end_offset)
    agreed = own.end_offset
    if own.epoch == diverging.epoch:
        agreed = min(agreed, diverging.end_offset)
    return min(agreed, log.end_offset)
