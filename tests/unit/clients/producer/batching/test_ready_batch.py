"""The send queue of one partition: its batches in flight have consecutive sequences."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.clients.producer.batching.ready_batch import PartitionQueue, ReadyBatch
from ottla.wire.records.batch import HEADER_BYTES

PRODUCER = (7, 0)
LAST = 2**31 - 1


def queue() -> PartitionQueue:
    lane: Any = SimpleNamespace(topic="orders", partition=0)
    made = PartitionQueue(lane)
    made.begin_sequences(PRODUCER)
    return made


def next_batch(outbox: PartitionQueue, records: int = 3) -> ReadyBatch:
    batch: Any = SimpleNamespace(record_count=records, charged_bytes=0)
    outbox.number += 1
    shipment = ReadyBatch(outbox, batch, outbox.number, bytearray(HEADER_BYTES))
    outbox.assign(shipment)
    return shipment


def test_batches_fly_one_after_another_also_where_sequences_begin_again() -> None:
    outbox = queue()
    outbox.next_sequence = LAST - 1
    for _ in range(3):
        outbox.begin_flight(next_batch(outbox))
    assert [one.base_sequence for one in outbox.flying] == [LAST - 1, 1, 4]


def test_a_gap_between_batches_in_flight_fails_an_assertion() -> None:
    outbox = queue()
    outbox.begin_flight(next_batch(outbox))
    outbox.next_sequence += 1
    with pytest.raises(AssertionError, match="orders"):
        outbox.begin_flight(next_batch(outbox))


def test_a_batch_that_overtakes_an_earlier_one_fails_an_assertion() -> None:
    outbox = queue()
    first, second = next_batch(outbox), next_batch(outbox)
    outbox.begin_flight(second)
    with pytest.raises(AssertionError, match="orders"):
        outbox.begin_flight(first)


def test_a_batch_between_two_others_may_have_been_completed() -> None:
    outbox = queue()
    for _ in range(2):
        outbox.begin_flight(next_batch(outbox))
    outbox.flying.pop()
    outbox.begin_flight(next_batch(outbox))
    assert [one.base_sequence for one in outbox.flying] == [0, 6]
