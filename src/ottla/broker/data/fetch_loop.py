"""The read loop of Fetch: all partitions of a request, in time slices if there are very many."""

from collections.abc import Callable, Collection, Hashable
from contextlib import nullcontext
from itertools import islice
from typing import Final

from ottla.broker.data.fetch_response import grouped
from ottla.broker.data.fetch_sessions import FetchedPartition, Read
from ottla.concurrency.notifier import Notifier, Subscription
from ottla.concurrency.yield_budget import TimeSlices
from ottla.model.api_error import ApiError
from ottla.replication.partition import Fetched
from ottla.wire.messages.fetch import FetchableTopicResponse

PARTITIONS_AT_ONCE: Final = 250
"""So many take about two milliseconds: others can wait for that."""
ReadOne = Callable[[FetchedPartition, int], Read | None]
"""Reads a partition, after this many bytes of others; None if the reader has the result already."""


async def read_all(
    wanted: Collection[FetchedPartition],
    read: ReadOne,
    bytes_min: int,
    slices: TimeSlices,
    notifier: Notifier | None,
) -> tuple[list[Read], int]:
    """Read all partitions; return the results and their bytes.

    With a notifier, partitions that are written to between two slices are read again in the end,
    unless there is enough without them: a fetch that then waits for notifications has missed none.
    A caller that listens already has none.
    """
    reads: list[Read] = []
    if len(wanted) <= PARTITIONS_AT_ONCE:
        return reads, _read_some(wanted, read, reads, 0)
    budget = slices.begin(steps_per_look=1)
    remaining = iter(tuple(wanted))  # a copy: the partitions of a session may change meanwhile
    size_bytes = heard = 0
    with nullcontext() if notifier is None else notifier.listening(()) as listener:
        while some := tuple(islice(remaining, PARTITIONS_AT_ONCE)):
            if budget.is_spent:
                heard = _listen(listener, reads, heard)
                await budget.yield_now()
            size_bytes = _read_some(some, read, reads, size_bytes)
        notified = set() if listener is None else set(listener.take())
    if notified:
        size_bytes = _read_again(reads, read, notified, size_bytes, bytes_min)
    return reads, size_bytes


def _listen(listener: Subscription | None, reads: list[Read], heard: int) -> int:
    """Listen to the partitions that were read since the last call; return how many there are."""
    if listener is not None:
        listener.add([one.name for one, _ in reads[heard:] if one.name is not None])
    return len(reads)


def _read_some(
    wanted: Collection[FetchedPartition], read: ReadOne, reads: list[Read], size_bytes: int
) -> int:
    """Append the results of these partitions; return the bytes of all results."""
    for partition in wanted:
        done = read(partition, size_bytes)
        if done is not None:
            reads.append(done)
            size_bytes += counted_bytes(done[1])
    return size_bytes


def _read_again(
    reads: list[Read], read: ReadOne, names: set[Hashable], size_bytes: int, bytes_min: int
) -> int:
    """Replace the results of these partitions until there are enough bytes; return the bytes."""
    for place, (partition, found) in enumerate(reads):
        if size_bytes >= bytes_min:
            break
        if partition.name in names:
            size_bytes -= counted_bytes(found)
            reads[place] = read(partition, size_bytes) or reads[place]
            size_bytes += counted_bytes(reads[place][1])
    return size_bytes


async def grouped_in_slices(reads: list[Read], slices: TimeSlices) -> list[FetchableTopicResponse]:
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
