"""DescribeQuorum v0-v2: the voters of the metadata log, its leader, and their progress.

A broker with an embedded metadata log is a quorum of one. Only the metadata partition has a quorum.
"""

from dataclasses import dataclass
from typing import Final

from ottla.broker.metadata_store.embedded.metadata_log import LEADER_EPOCH, METADATA_PARTITION
from ottla.broker.metadata_store.embedded.store import EmbeddedMetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.environment.clock import Clock
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.listeners import REGISTRY_ENDPOINT
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseTopic,
    Listener,
    Node,
    ReplicaState,
)

VERSIONS = range(3)
_NODES_SINCE: Final = 2


@dataclass(frozen=True, slots=True)
class DescribeQuorumHandler:
    """Answers DescribeQuorum."""

    store: EmbeddedMetadataStore
    clock: Clock

    async def handle(
        self, context: RequestContext, request: DescribeQuorumRequest
    ) -> DescribeQuorumResponse:
        """Describe the quorum of the metadata partition; no other partition has any."""
        has_nodes = context.api_version >= _NODES_SINCE
        response = DescribeQuorumResponse(
            topics=[
                DescribeQuorumResponseTopic(
                    topic_name=topic.topic_name,
                    partitions=[
                        self._described(
                            TopicPartition(topic.topic_name, wanted.partition_index),
                            has_directories=has_nodes,
                        )
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
        if has_nodes:
            response.nodes = [self._node()]
        return response

    def _described(
        self, partition: TopicPartition, *, has_directories: bool
    ) -> DescribeQuorumResponsePartition:
        if partition != METADATA_PARTITION:
            return DescribeQuorumResponsePartition(
                partition_index=partition.partition,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                error_message=f"only {METADATA_PARTITION} has a quorum",
            )
        now_ms = self.clock.now_ms()
        identity, end_offset = self.store.identity, self.store.image.end_offset
        voter = ReplicaState(
            replica_id=identity.node_id,
            log_end_offset=end_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        if has_directories:
            voter.replica_directory_id = identity.directory_ids[0]
        return DescribeQuorumResponsePartition(
            partition_index=partition.partition,
            leader_id=identity.node_id,
            leader_epoch=LEADER_EPOCH,
            high_watermark=end_offset,
            current_voters=[voter],
        )

    def _node(self) -> Node:
        node_id = self.store.identity.node_id
        return Node(
            node_id=node_id,
            listeners=[
                Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
                for endpoint in self.store.image.brokers[node_id].endpoints
                if endpoint.name != REGISTRY_ENDPOINT
            ],
        )
