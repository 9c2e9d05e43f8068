"""Fetches of very many partitions: they yield to other requests, and miss no write meanwhile."""

import asyncio
from typing import Any

from ottla.broker.data.fetch_loop import PARTITIONS_AT_ONCE, grouped_in_slices, read_all
from ottla.broker.data.fetch_response import grouped
from ottla.broker.data.fetch_sessions import FetchedPartition, Read
from ottla.concurrency.notifier import Notifier
from ottla.concurrency.yield_budget import TimeSlices
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.replication.partition import Fetched, Traffic
from ottla.storage.files.log_slice import LogSlice
from ottla.wire.messages.fetch import FetchPartition
from tests.taking_turns import PassingClock, turns_of_others

COUNT = 40 * PARTITIONS_AT_ONCE
FILE: Any = None


def wanted() -> list[FetchedPartition]:
    return [
        FetchedPartition("letters", bytes(16), FetchPartition(partition=index), by_id=False)
        for index in range(COUNT)
    ]


def empty() -> Fetched:
    return Fetched(LogSlice(FILE, 0, 0), 0, 0, 0, Traffic())


def missing(partition: FetchedPartition, _bytes_before: int) -> Read:
    return partition, ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_others_have_their_turn_between_partitions_that_are_not_there() -> None:
    async def story() -> None:
        clock = PassingClock()
        work = read_all(wanted(), missing, 1, TimeSlices(clock), Notifier(clock))
        (reads, size_bytes), turns = await turns_of_others(work)
        assert (len(reads), size_bytes) == (COUNT, 0)
        assert turns >= 5
        topics, turns = await turns_of_others(grouped_in_slices(reads, TimeSlices(clock)))
        assert topics == grouped(reads)
        assert turns >= 5

    asyncio.run(story())


class Written:
    """Partitions of given sizes, to which the test writes while the fetch yields."""

    def __init__(self, size_by_index: dict[int, int]) -> None:
        clock = PassingClock()
        self.partitions = wanted()
        self._sizes = size_by_index
        self._notifier, self._slices = Notifier(clock), TimeSlices(clock)
        self.told: list[int] = []

    def _read(self, partition: FetchedPartition, bytes_before: int) -> Read:
        size_bytes = self._sizes.get(partition.wanted.partition, 0)
        if size_bytes:
            self.told.append(bytes_before)
        return partition, empty()._replace(records=LogSlice(FILE, 0, size_bytes))

    async def read(self, bytes_min: int, size_by_index: dict[int, int]) -> tuple[list[Read], int]:
        """Begin to read, write so that these become the sizes, then return the reads."""
        reading = asyncio.ensure_future(
            read_all(self.partitions, self._read, bytes_min, self._slices, self._notifier)
        )
        await asyncio.sleep(0)
        self._sizes |= size_by_index
        for index in size_by_index:
            self._notifier.notify(self.partitions[index].name)
        assert not reading.done()
        result = await reading
        assert not self._notifier._waiting
        return result


def test_records_appended_between_two_slices_are_found() -> None:
    written = Written({})
    reads, size_bytes = asyncio.run(written.read(30, {0: 10, COUNT - 1: 20}))
    assert size_bytes == 30
    assert [one for one, _ in reads] == written.partitions
    assert written.told == [0, 20]


def test_what_is_added_to_too_little_while_others_have_their_turn_is_found() -> None:
    written = Written({0: 5, 1: 5})
    reads, size_bytes = asyncio.run(written.read(30, {0: 25}))
    assert size_bytes == 30
    assert [one for one, _ in reads] == written.partitions
    assert written.told == [0, 5, 5]


def test_nothing_is_read_again_where_there_is_enough() -> None:
    written = Written({1: 5})
    _, size_bytes = asyncio.run(written.read(5, {0: 10}))
    assert size_bytes == 5
    assert written.told == [0]


def test_partitions_of_which_the_reader_has_the_result_are_left_out() -> None:
    async def story(count: int) -> list[int]:
        clock = PassingClock()

        def odd(partition: FetchedPartition, bytes_before: int) -> Read | None:
            return missing(partition, bytes_before) if partition.wanted.partition % 2 else None

        reads, _ = await read_all(wanted()[:count], odd, 1, TimeSlices(clock), None)
        return [partition.wanted.partition for partition, _ in reads]

    for count in (10, COUNT):
        assert asyncio.run(story(count)) == list(range(1, count, 2))
