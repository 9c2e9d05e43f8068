"""Fetches of very many partitions: others have their turn, and nothing is missed meanwhile."""

import asyncio
from typing import Any

from ottla.broker.fetch_answers import grouped
from ottla.broker.fetch_sessions import FetchedPartition, Read
from ottla.broker.fetch_turns import PARTITIONS_AT_ONCE, grouped_in_turns, read_in_turns
from ottla.broker.progress import Bells
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.replication.fetched import Fetched
from ottla.replication.traffic import Traffic
from ottla.storage.log_slice import LogSlice
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
        work = read_in_turns(wanted(), missing, Bells(clock), clock)
        (reads, size_bytes), turns = await turns_of_others(work)
        assert (len(reads), size_bytes) == (COUNT, 0)
        assert turns >= 5
        topics, turns = await turns_of_others(grouped_in_turns(reads, clock))
        assert topics == grouped(reads)
        assert turns >= 5

    asyncio.run(story())


def test_what_is_written_while_others_have_their_turn_is_found() -> None:
    async def story() -> None:
        clock = PassingClock()
        bells = Bells(clock)
        partitions = wanted()
        first, last = partitions[0], partitions[-1]
        sizes = dict.fromkeys((one.wanted.partition for one in partitions), 0)
        told: list[int] = []

        def read(partition: FetchedPartition, bytes_before: int) -> Read:
            size_bytes = sizes[partition.wanted.partition]
            if size_bytes:
                told.append(bytes_before)
            return partition, empty()._replace(records=LogSlice(FILE, 0, size_bytes))

        async def write() -> None:
            await asyncio.sleep(0)
            for one, size_bytes in ((first, 10), (last, 20)):
                sizes[one.wanted.partition] = size_bytes
                bells.ring(one.name)

        reading = asyncio.ensure_future(read_in_turns(partitions, read, bells, clock))
        await write()
        assert not reading.done()
        reads, size_bytes = await reading
        assert size_bytes == 30
        assert [one for one, _ in reads] == partitions
        assert told == [0, 20]
        assert not bells._waiting

    asyncio.run(story())
