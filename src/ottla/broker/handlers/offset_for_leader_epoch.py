"""OffsetForLeaderEpoch v0-v4: the end of a leader epoch in the log (KIP-101, KIP-320).

A client that has read past that end in that epoch has read records that are gone. For epochs that
have not begun the response is -1 and -1. A request with another leader epoch than the current one
gets an error first.
"""

from dataclasses import dataclass

from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.requests.request_context import RequestContext
from ottla.concurrency.yield_budget import TimeSlices
from ottla.model.api_error import ApiError
from ottla.model.identifiers import LeaderEpoch, TopicPartition
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

VERSIONS = range(5)


@dataclass(frozen=True, slots=True)
class OffsetForLeaderEpochHandler:
    """Answers OffsetForLeaderEpoch."""

    partitions: HostedPartitions
    slices: TimeSlices

    async def handle(
        self, _context: RequestContext, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        """Look every epoch up."""
        budget = self.slices.begin()
        response = OffsetForLeaderEpochResponse()
        for topic in request.topics:
            answered = OffsetForLeaderTopicResult(topic=topic.topic)
            response.topics.append(answered)
            for wanted in topic.partitions:
                answered.partitions.append(self._find(topic.topic, wanted))
                await budget.yield_if_spent()
        return response

    def _find(self, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
        try:
            partition = self.partitions.get(TopicPartition(topic, wanted.partition))
            partition.check_leader(LeaderEpoch(wanted.current_leader_epoch))
            epoch, end_offset = partition.end_of_epoch(LeaderEpoch(wanted.leader_epoch))
        except ApiError as error:
            return EpochEndOffset(partition=wanted.partition, error_code=error.code)
        return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
