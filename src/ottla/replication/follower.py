"""What a follower asks its leader for, and where it cuts its log back.

A follower names the epoch of the last thing that it has. If the leader has something else there,
it says up to where the two may agree, and the follower cuts its log back and asks again. So it
never appends behind what its leader does not have, and never cuts what it does not have to.
"""

from typing import NamedTuple

from ottla.storage.log.leader_epochs import EpochEnd
from ottla.storage.log.log import PartitionLog
from ottla.wire.records.batch import batches

NO_EPOCH = -1


class NextFetch(NamedTuple):
    """What to ask for."""

    offset: int
    last_fetched_epoch: int


def next_fetch(log: PartitionLog) -> NextFetch:
    """Ask for what comes after the end, naming the epoch of what is there."""
    latest = log.epochs.latest_epoch
    return NextFetch(log.end_offset, NO_EPOCH if latest is None else latest)


def beginning_before(log: PartitionLog, data: memoryview) -> int | None:
    """Return where a log has to begin anew to take its first batch; None if it need not.

    A leader whose records were deleted up to the middle of a batch gives out all of it.
    """
    if log.log_start_offset < log.end_offset:
        return None
    first = next(batches(data), None)
    is_within = first is not None and first.base_offset < log.end_offset <= first.last_offset
    return first.base_offset if first is not None and is_within else None


def truncation_offset(log: PartitionLog, diverging: EpochEnd) -> int:
    """Return where to cut, so that nothing is left that the leader may not have.

    The leader has told the largest epoch that it knows up to ours, and where that ended. If we
    know it too, we agree up to where either of us ended it. If not, all after the last one before
    it has to go, and asking again tells the rest (KIP-279).
    """
    own = log.epochs.end_offset_for(diverging.epoch, log.end_offset)
    agreed = own.end_offset
    if own.epoch == diverging.epoch:
        agreed = min(agreed, diverging.end_offset)
    return min(agreed, log.end_offset)
