"""Fetches of very many partitions, in time slices."""

from collections.abc import Callable, Collection
from itertools import islice
from typing import Final

from ottla.broker.data.fetch_response import grouped
from ottla.broker.data.fetch_sessions import FetchedPartition, Read
from ottla.concurrency.notifier import Notifier
from ottla.concurrency.yield_budget import TimeSlices
from ottla.model.api_error import ApiError
from ottla.replication.partition import Fetched
from ottla.wire.messages.fetch import FetchableTopicResponse

PARTITIONS_AT_ONCE: Final = 250
"""So many take about two milliseconds: others can wait for that."""


async def read_in_turns(
    wanted: Collection[FetchedPartition],
    read: Callable[[FetchedPartition, int], Read],
    bytes_min: int,
    notifier: Notifier,
    slices: TimeSlices,
) -> tuple[list[Read], int]:
    """Call a function for each partition, with the bytes read so far; return all results and bytes.

    Records written meanwhile are read in the end, unless there is enough without them: a fetch that
    then waits for notifications has missed none.
    """
    budget = slices.begin(steps_per_look=1)
    remaining = iter(tuple(wanted))  # a copy: the partitions of a session may change meanwhile
    reads: list[Read] = []
    size_bytes = heard = 0
    with notifier.listening(()) as listener:
        while some := tuple(islice(remaining, PARTITIONS_AT_ONCE)):
            if budget.is_spent:
                listener.add([one.name for one, _ in reads[heard:] if one.name is not None])
                heard = len(reads)
                await budget.yield_now()
            for partition in some:
                reads.append(read(partition, size_bytes))
                size_bytes += counted_bytes(reads[-1][1])
        notified = set(listener.take())
    if notified:
        for place, (partition, found) in enumerate(reads):
            if size_bytes >= bytes_min:
                break
            if partition.name in notified:
                size_bytes -= counted_bytes(found)
                reads[place] = read(partition, size_bytes)
                size_bytes += counted_bytes(reads[place][1])
    return reads, size_bytes


async def grouped_in_turns(reads: list[Read], slices: TimeSlices) -> list[FetchableTopicResponse]:
    """Group neighbours of the same topic; few of them at once."""
    if len(reads) <= PARTITIONS_AT_ONCE:
        return grouped(reads)
    budget = slices.begin(steps_per_look=1)
    topics: list[FetchableTopicResponse] = []
    for start in range(0, len(reads), PARTITIONS_AT_ONCE):
        await budget.yield_if_spent()
        grouped(reads[start : start + PARTITIONS_AT_ONCE], topics)
    return topics


def counted_bytes(found: Fetched | ApiError) -> int:
    """Return the bytes that count as read. A partition without them does not make a fetch wait."""
    if isinstance(found, ApiError):
        return 0
    return found.records.size_bytes + found.records.left_out_bytes
