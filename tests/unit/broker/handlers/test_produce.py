"""Produce, with changes while the handler waits."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

from ottla.broker.coordinators.partition_enlistment import Enlist
from ottla.broker.coordinators.transaction_verification import TransactionVerification
from ottla.broker.handlers.produce import ProduceHandler
from ottla.broker.hosting.hosted_partitions import Partitions
from ottla.concurrency.notifier import Notifier
from ottla.machines.transactions.add_partitions import Enlistment
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import Partition
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.log_building import batch, new_log
from tests.metadata_building import FixedClock

NAMES = [TopicPartition("orders", index) for index in range(2)]


class Electing:
    """A coordinator; while it responds, this broker is elected leader of a partition."""

    def __init__(self, elected: Partition) -> None:
        self.elected = elected

    async def enlist(self, _wanted: Enlistment) -> Mapping[TopicPartition, ErrorCode]:
        self.elected.lead(1)
        return {}


def test_a_partition_that_comes_to_be_led_while_another_is_verified_is_tried_again() -> None:
    partitions = Partitions()
    led, followed = (Partition(name, bytes(16), new_log(), lambda _: None) for name in NAMES)
    led.lead(0)
    followed.follow(2, 0)
    for partition in (led, followed):
        partitions.add(partition)
    codes = asyncio.run(produced(partitions, Electing(followed).enlist))
    assert codes == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def produced(partitions: Partitions, enlist: Enlist) -> list[int]:
    """Write to each partition in one transactional request; return the error codes."""
    clock = FixedClock()
    notifier = Notifier(clock)
    leader = SimpleNamespace(leader_id=1, leader_epoch=1, endpoint=None)
    unused: Any = SimpleNamespace(
        flush_where_due=AsyncMock(return_value=[]), find=lambda *_: leader, errors=Counter()
    )
    validation: Any = SimpleNamespace(is_at_work=lambda _: False)
    verification = TransactionVerification(clock, notifier, lambda: True, enlist)
    handler = ProduceHandler(
        partitions,
        unused,
        clock,
        unused,
        unused,
        validation,
        unused,
        notifier,
        lambda: True,
        verification,
    )
    rows = [
        PartitionProduceData(
            index=name.partition,
            records=batch(producer_id=9, producer_epoch=2, base_sequence=0, is_transactional=True),
        )
        for name in NAMES
    ]
    topics = [TopicProduceData(name=NAMES[0].topic, partition_data=rows)]
    request = ProduceRequest(transactional_id="copier", acks=1, timeout_ms=1_000, topic_data=topics)
    context: Any = SimpleNamespace(api_version=12, received_ms=0, listener="PLAINTEXT")
    response = await handler.handle(context, request)
    assert response is not None
    return [row.error_code for row in response.responses[0].partition_responses]
