"""Produce, with changes while the handler waits."""

import asyncio
from collections.abc import Mapping

from ottla.broker.coordinators.partition_enlistment import Enlist
from ottla.broker.coordinators.transaction_verification import TransactionVerification
from ottla.broker.data.batch_validation import BatchValidation
from ottla.broker.data.message_format_conversion import MessageFormatConversion
from ottla.broker.describing.metadata_view import CurrentLeaders
from ottla.broker.handlers.produce import ProduceHandler
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.hosting.log_flusher import LogFlusher
from ottla.broker.requests.request_context import RequestContext
from ottla.broker.requests.request_metrics import Meters
from ottla.concurrency.notifier import Notifier
from ottla.machines.transactions.add_partitions import Enlistment
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import Partition
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.log_building import batch, new_log
from tests.metadata_building import FixedClock, InlineExecutor, one_broker

CONTEXT = RequestContext("User:ANONYMOUS", None, "127.0.0.1", "PLAINTEXT", 12, 0)
NAMES = [TopicPartition("orders", index) for index in range(2)]


class Electing:
    """A coordinator; while it responds, this broker is elected leader of a partition."""

    def __init__(self, elected: Partition) -> None:
        self.elected = elected

    async def enlist(self, _wanted: Enlistment) -> Mapping[TopicPartition, ErrorCode]:
        self.elected.lead(1)
        return {}


def test_a_partition_that_comes_to_be_led_while_another_is_verified_is_tried_again() -> None:
    partitions = HostedPartitions()
    led, followed = (Partition(name, bytes(16), new_log(), lambda _: None) for name in NAMES)
    led.lead(0)
    followed.follow(2, 0)
    for partition in (led, followed):
        partitions.add(partition)
    codes = asyncio.run(produced(partitions, Electing(followed).enlist))
    assert codes == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def produced(partitions: HostedPartitions, enlist: Enlist) -> list[int]:
    """Write to each partition in one transactional request; return the error codes."""
    clock, threads = FixedClock(), InlineExecutor()
    notifier = Notifier(clock)
    handler = ProduceHandler(
        partitions,
        LogFlusher(threads, clock),
        clock,
        CurrentLeaders(one_broker),
        MessageFormatConversion(threads),
        BatchValidation(threads),
        Meters(),
        notifier,
        lambda: True,
        TransactionVerification(clock, notifier, lambda: True, enlist),
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
    response = await handler.handle(CONTEXT, request)
    assert response is not None
    return [row.error_code for row in response.responses[0].partition_responses]
