"""The requests between replicas of the metadata log, and about its quorum: all versions.

Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot of `__cluster_metadata`,
DescribeQuorum, AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter. The replica answers them
(`ottla.raft`). While it waits for room on a full disk, the answer is KAFKA_STORAGE_ERROR.
"""

from dataclasses import dataclass

from ottla.broker.quorum.metadata_replica import MetadataReplica
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.wire.apis import api_of, key_of
from ottla.wire.schema import Message


@dataclass(frozen=True, slots=True)
class ReplicaRequestHandler:
    """Passes requests to the replica of this node."""

    replica: MetadataReplica

    async def handle(self, context: RequestContext, request: Message) -> Message:
        """Return the answer of the replica; a Fetch waits for records."""
        try:
            return await self.replica.handle(request, context.api_version)
        except ApiError as error:
            return api_of(key_of(type(request))).response(error_code=error.code)
