"""DescribeCluster v0-v2: the brokers, and the client's allowed operations on the cluster.

Since version 1 a client asks for brokers or controllers; only a controller answers the latter.
Since version 2 it may ask for fenced brokers, too. The response names the active controller, for
people; Metadata names the queried broker, which forwards requests.
"""

from dataclasses import dataclass
from typing import Final

from ottla.broker.controller.controller_client import ActiveController
from ottla.broker.describing.authorized_operations import NOT_ASKED, ON_CLUSTER
from ottla.broker.describing.metadata_view import MetadataView
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.quorum.metadata_replica import MetadataReplica
from ottla.broker.requests.request_context import RequestContext
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

VERSIONS = range(3)
BROKERS: Final = 1
CONTROLLERS: Final = 2
NO_CONTROLLER: Final = -1


@dataclass(frozen=True, slots=True)
class DescribeClusterHandler:
    """Answers DescribeCluster."""

    view: MetadataView
    controller: ActiveController

    async def handle(
        self, context: RequestContext, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        """List the brokers that can be reached through the client's listener."""
        if request.endpoint_type != BROKERS:
            return _refused(request.endpoint_type)
        is_asked = request.include_cluster_authorized_operations
        brokers = [
            DescribeClusterBroker(
                broker_id=broker.broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.is_fenced,
            )
            for broker, endpoint in self.view.brokers(context.listener)
            if request.include_fenced_brokers or not broker.is_fenced
        ]
        return DescribeClusterResponse(
            cluster_id=self.view.image.cluster_id,
            controller_id=self.controller.id,
            brokers=brokers,
            cluster_authorized_operations=ON_CLUSTER if is_asked else NOT_ASKED,
        )


@dataclass(frozen=True, slots=True)
class DescribeControllersHandler:
    """Answers DescribeCluster on a listener for controllers, which knows no brokers."""

    store: MetadataStore
    replica: MetadataReplica

    async def handle(
        self, context: RequestContext, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        """List the registered controllers that listen under the name of the client's listener."""
        if request.endpoint_type != CONTROLLERS:
            return _refused(request.endpoint_type, refused=BROKERS)
        leader = self.replica.leader
        is_asked = request.include_cluster_authorized_operations
        controllers = [
            DescribeClusterBroker(
                broker_id=controller.controller_id, host=endpoint.host, port=endpoint.port
            )
            for controller in self.store.image.controllers.values()
            for endpoint in controller.endpoints
            if endpoint.name == context.listener
        ]
        return DescribeClusterResponse(
            endpoint_type=CONTROLLERS,
            cluster_id=self.store.image.cluster_id,
            controller_id=NO_CONTROLLER
            if leader is None or leader.node_id is None
            else leader.node_id,
            brokers=controllers,
            cluster_authorized_operations=ON_CLUSTER if is_asked else NOT_ASKED,
        )


def _refused(endpoint_type: int, *, refused: int = CONTROLLERS) -> DescribeClusterResponse:
    """Refuse a client that asks a broker for controllers, or the other way round."""
    sentence_by_type = {
        BROKERS: "this is a controller: ask a broker for brokers",
        CONTROLLERS: "this is a broker: ask a controller for controllers",
    }
    if endpoint_type != refused:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"there is no endpoint type {endpoint_type}",
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
        error_message=sentence_by_type[endpoint_type],
    )
