"""ElectLeaders v0-v2: hold elections in partitions, or in all that need one (KIP-460).

A partition with its preferred leader gets ELECTION_NOT_NEEDED.
"""

from dataclasses import dataclass

from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

VERSIONS = range(3)
_ERROR_SINCE = 1


@dataclass(frozen=True, slots=True)
class ElectLeadersHandler:
    """Answers ElectLeaders."""

    store: MetadataStore

    async def handle(
        self, context: RequestContext, request: ElectLeadersRequest
    ) -> ElectLeadersResponse:
        """Let the controller decide; on the response, brokers know the leaders."""
        try:
            results = await self.store.execute(lambda controller: controller.elect_leaders(request))
        except ApiError as error:
            if context.api_version < _ERROR_SINCE:
                return ElectLeadersResponse(replica_election_results=_refused(request, error))
            return ElectLeadersResponse(error_code=error.code)
        return ElectLeadersResponse(replica_election_results=results)


def _refused(request: ElectLeadersRequest, error: ApiError) -> list[ReplicaElectionResult]:
    """Copy the error to each partition, for versions without a top-level error."""
    return [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                PartitionResult(
                    partition_id=number, error_code=error.code, error_message=error.detail
                )
                for number in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
