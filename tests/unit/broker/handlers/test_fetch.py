"""Fetch of many missing partitions, and of followers with nothing new."""

import asyncio
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from ottla.broker.data.fetch_loop import PARTITIONS_AT_ONCE
from ottla.broker.data.fetch_reader import FetchReader
from ottla.broker.data.fetch_sessions import Answer, FetchedPartition, Read
from ottla.broker.handlers.fetch import FetchHandler
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.requests.request_context import RequestContext
from ottla.concurrency.notifier import Notifier
from ottla.concurrency.yield_budget import TimeSlices
from ottla.environment.clock import Clock
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_OFFSET, BrokerId, LeaderEpoch
from ottla.replication.in_sync import Assignment
from ottla.replication.partition import Partition
from ottla.wire.messages.fetch import FetchPartition, FetchRequest
from tests.log_building import PARTITION, new_log
from tests.metadata_building import FixedClock
from tests.taking_turns import PassingClock, turns_of_others

CONTEXT = RequestContext("User:ANONYMOUS", None, "127.0.0.1", "PLAINTEXT", 12, 0)
REPLICAS = (BrokerId(0), BrokerId(1))


class Remembering:
    """A fetch that keeps the reads."""

    def __init__(self, count: int = 3) -> None:
        self.reads: list[Read] = []
        self.partitions = [
            FetchedPartition("gone", bytes(16), FetchPartition(partition=index), by_id=False)
            for index in range(count)
        ]

    def conclude(self, reads: list[Read]) -> Answer:
        self.reads = reads
        return Answer(0, reads)


def handler_of(fetching: Remembering, clock: Clock) -> FetchHandler:
    unused: Any = SimpleNamespace(errors=Counter(), begin=lambda *_, **__: fetching)
    return FetchHandler(
        HostedPartitions(),
        Notifier(clock),
        unused,
        unused,
        unused,
        1000,
        unused,
        unused,
        unused,
        TimeSlices(clock),
    )


def test_others_have_their_turn_while_very_many_partitions_are_looked_for() -> None:
    count = 40 * PARTITIONS_AT_ONCE
    handler = handler_of(Remembering(count), PassingClock())
    work = handler.handle(CONTEXT, FetchRequest(max_bytes=1000))
    answer, turns = asyncio.run(turns_of_others(work))
    assert len(answer.responses[0].partitions) == count
    assert turns >= 10


def test_errors_of_partitions_keep_no_frames_alive() -> None:
    fetching = Remembering()
    handler = handler_of(fetching, FixedClock())
    answer = asyncio.run(handler.handle(CONTEXT, FetchRequest(max_bytes=1000)))
    codes = [one.error_code for one in answer.responses[0].partitions]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
    for _, found in fetching.reads:
        assert isinstance(found, ApiError)
        assert found.__traceback__ is None


def test_a_follower_that_was_let_in_while_its_fetch_waited_is_examined_at_its_next_fetch() -> None:
    """Only the first read of a request counts as a fetch: a later one must not hide the next."""
    partition = Partition(PARTITION, bytes(16), new_log(), lambda _: None)
    partition.lead(LeaderEpoch(0), Assignment(BrokerId(0), REPLICAS, REPLICAS, 0))
    fetching, clock = Remembering(1), FixedClock()
    handler = handler_of(fetching, clock)
    handler.partitions.add(partition)
    wanted = FetchPartition(partition=PARTITION.partition, current_leader_epoch=0)
    fetched = FetchedPartition(PARTITION.topic, bytes(16), wanted, by_id=False)
    request = FetchRequest(replica_id=1, max_bytes=1000)
    first = FetchReader.of(request, CONTEXT.api_version, 0, 1000)
    again = first._replace(asked_ms=None)
    throttle: Any = SimpleNamespace(is_held_back=lambda *_: False)
    handler = replace(handler, throttle=throttle)
    assert partition.in_sync is not None

    for reader, end_offset, is_quiet in ((again, NO_OFFSET, False), (first, 0, True)):
        found = handler._read(fetched, 1000, 0, reader)
        fetched.told(found)
        assert partition.in_sync.followers[BrokerId(1)].end_offset == end_offset
        assert handler._is_quiet(fetched, BrokerId(1)) == is_quiet
