"""Where the epochs of a led log end, and where another log stops to be the same (KIP-101, 279)."""

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.storage.log.leader_epochs import UNKNOWN_END, EpochEnd
from ottla.storage.log.log import PartitionLog


def end_of_epoch(log: PartitionLog, leader_epoch: int, epoch: int) -> EpochEnd:
    """Return the largest epoch up to this one and its end offset; UNKNOWN_END for later epochs.

    The leader's own epoch begins at the end of the log even if it has no records.
    """
    latest = log.epochs.latest_epoch
    is_begun = latest is not None and latest >= leader_epoch
    if is_begun or not (latest or 0) <= epoch <= leader_epoch:
        return log.epochs.end_offset_for(epoch, log.end_offset)
    is_known = latest is None or epoch == leader_epoch
    return EpochEnd(epoch if is_known else latest or 0, log.end_offset)


def divergence(log: PartitionLog, leader_epoch: int, offset: int, epoch: int) -> EpochEnd | None:
    """Return where a reader's log diverges, if it has this epoch before an offset."""
    end = end_of_epoch(log, leader_epoch, epoch)
    if end == UNKNOWN_END or offset < log.log_start_offset:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"a log from {log.log_start_offset} has no offset {offset} after epoch {epoch}",
        )
    return end if end.epoch < epoch or end.end_offset < offset else None
