"""Waits until appended records are on every in-sync replica: acks=all."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from ottla.concurrency.notifier import Notifier
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import LeaderEpoch, Offset, TopicPartition
from ottla.replication.partition import Partition

LEASE_IN_DOUBT: Final = "doubt"
"""Notified while this broker's lease may have expired."""


class PendingReplication(NamedTuple):
    """An append to a partition that ends before this offset, in this leader epoch."""

    partition: Partition
    end_offset: Offset
    leader_epoch: LeaderEpoch


async def committed(
    notifier: Notifier,
    awaited: Iterable[PendingReplication],
    deadline_ms: int,
    has_valid_lease: Callable[[], bool],
) -> list[ApiError | None]:
    """Return, in the same order, None for committed appends, or the error of uncertain ones.

    REQUEST_TIMED_OUT after the deadline, NOT_LEADER_OR_FOLLOWER if another broker leads by now,
    or may do so, NOT_ENOUGH_REPLICAS_AFTER_APPEND if too few replicas are in sync.
    """
    every = list(awaited)
    outcome: list[ApiError | None] = [
        ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{one.partition.name}: replicas are late")
        for one in every
    ]
    left = list(range(len(every)))
    while True:
        left = [number for number in left if not _try_to_finish(every[number], outcome, number)]
        if left and not has_valid_lease():
            for number in left:
                outcome[number] = in_doubt(every[number].partition.name)
            return outcome
        names = [LEASE_IN_DOUBT, *(every[number].partition.name for number in left)]
        if not left or not await notifier.wait_any(names, deadline_ms):
            return outcome


def in_doubt(name: TopicPartition) -> ApiError:
    """Return the error of a broker that may have been replaced without knowing it."""
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name}: others may lead it by now")


def _try_to_finish(one: PendingReplication, outcome: list[ApiError | None], number: int) -> bool:
    """Fill in the outcome if it is known; False if that has to be done again."""
    try:
        if not one.partition.is_committed(one.end_offset, one.leader_epoch):
            return False
        outcome[number] = None
    except ApiError as error:
        outcome[number] = error
    return True
