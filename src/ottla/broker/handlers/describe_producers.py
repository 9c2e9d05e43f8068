"""DescribeProducers v0: the active producers of partitions (KIP-664).

Only producers that the partition remembers are listed: a producer without writes for
`producer.id.expiration.ms` is dropped, unless its transaction is open. Every replica answers from
its own state, as Kafka's tool can ask any broker.
"""

from dataclasses import dataclass

from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.requests.request_context import RequestContext
from ottla.concurrency.yield_budget import TimeSlices
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

VERSIONS = range(1)


@dataclass(frozen=True, slots=True)
class DescribeProducersHandler:
    """Answers DescribeProducers."""

    partitions: HostedPartitions
    slices: TimeSlices

    async def handle(
        self, _context: RequestContext, request: DescribeProducersRequest
    ) -> DescribeProducersResponse:
        """List the producers of every partition."""
        budget = self.slices.begin()
        response = DescribeProducersResponse()
        for topic in request.topics:
            answered = TopicResponse(name=topic.name)
            response.topics.append(answered)
            for index in topic.partition_indexes:
                answered.partitions.append(self._describe(topic.name, index))
                await budget.yield_if_spent()
        return response

    def _describe(self, topic: str, index: int) -> PartitionResponse:
        try:
            partition = self.partitions.get(TopicPartition(topic, index))
        except ApiError as error:
            return PartitionResponse(
                partition_index=index, error_code=error.code, error_message=error.detail
            )
        return PartitionResponse(
            partition_index=index,
            active_producers=[
                ProducerState(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp=producer.timestamp_ms,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=producer.transaction_first_offset,
                )
                for producer in partition.log.producers.producers()
            ],
        )
