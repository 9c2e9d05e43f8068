"""The send queue of one partition: its batches in flight have consecutive sequences."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.clients.producer.batching.ready_batch import PartitionQueue, ReadyBatch
from ottla.wire.records.batch import HEADER_BYTES

PRODUCER = (7, 0)
LAST = 2**31 - 1


def new_queue() -> PartitionQueue:
    lane: Any = SimpleNamespace(topic="orders", partition=0)
    made = PartitionQueue(lane)
    made.begin_sequences(PRODUCER)
    return made


def next_batch(queue: PartitionQueue, records: int = 3) -> ReadyBatch:
    batch: Any = SimpleNamespace(record_count=records, charged_bytes=0)
    queue.number += 1
    ready_batch = ReadyBatch(queue, batch, queue.number, bytearray(HEADER_BYTES))
    queue.assign(ready_batch)
    return ready_batch


def test_batches_fly_one_after_another_also_where_sequences_begin_again() -> None:
    queue = new_queue()
    queue.next_sequence = LAST - 1
    for _ in range(3):
        queue.begin_flight(next_batch(queue))
    assert [one.base_sequence for one in queue.flying] == [LAST - 1, 1, 4]


def test_a_gap_between_batches_in_flight_fails_an_assertion() -> None:
    queue = new_queue()
    queue.begin_flight(next_batch(queue))
    queue.next_sequence += 1
    with pytest.raises(AssertionError, match="orders"):
        queue.begin_flight(next_batch(queue))


def test_a_batch_that_overtakes_an_earlier_one_fails_an_assertion() -> None:
    queue = new_queue()
    first, second = next_batch(queue), next_batch(queue)
    queue.begin_flight(second)
    with pytest.raises(AssertionError, match="orders"):
        queue.begin_flight(first)


def test_a_batch_between_two_others_may_have_been_completed() -> None:
    queue = new_queue()
    for _ in range(2):
        queue.begin_flight(next_batch(queue))
    queue.flying.pop()
    queue.begin_flight(next_batch(queue))
    assert [one.base_sequence for one in queue.flying] == [0, 6]
