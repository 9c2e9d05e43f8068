"""BrokerHeartbeat v0-v2: a broker tells that it is alive, and asks for its next state (KIP-631).

For brokers only, and not advertised to clients. A broker that is about to stop hands over its
leaderships, and repeats the request until the response says that it should shut down.

With metadata in ZooKeeper, the session there proves that a broker is alive, so there are no other
heartbeats: a broker that does not want to shut down gets its registered state.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ottla.broker.controller.cluster_membership import ControlledShutdown
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.environment.clock import Clock
from ottla.machines.controller.brokers import check_broker_epoch
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.identifiers import BrokerId
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

VERSIONS = range(3)


@dataclass(frozen=True, slots=True)
class QuorumHeartbeatHandler:
    """Answers BrokerHeartbeat as the active controller of a quorum."""

    store: MetadataStore
    clock: Clock
    note_offsets: Callable[[Controller], None] = lambda _: None
    """Tells the controller how far the brokers are that send no heartbeats."""

    async def handle(
        self, _context: RequestContext, request: BrokerHeartbeatRequest
    ) -> BrokerHeartbeatResponse:
        """Let the controller decide on the next state of the broker."""

        def decide(controller: Controller) -> Decision[MetadataRecord, BrokerHeartbeatResponse]:
            if request.want_shut_down:
                self.note_offsets(controller)
            return controller.heartbeat(request, self.clock.monotonic_ms())

        try:
            return await self.store.execute(decide)
        except ApiError as error:
            return BrokerHeartbeatResponse(error_code=error.code)


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatHandler:
    """Answers BrokerHeartbeat as the controller of a cluster with ZooKeeper."""

    store: MetadataStore
    controlled_shutdown: ControlledShutdown

    async def handle(
        self, _context: RequestContext, request: BrokerHeartbeatRequest
    ) -> BrokerHeartbeatResponse:
        """Move leadership away if requested, and return whether the broker may stop."""

        def decide(controller: Controller) -> Decision[MetadataRecord, BrokerHeartbeatResponse]:
            broker_id = BrokerId(request.broker_id)
            check_broker_epoch(controller.image, broker_id, request.broker_epoch)
            broker = controller.image.brokers[broker_id]
            is_caught_up = request.current_metadata_offset >= controller.image.end_offset
            return Decision(
                (),
                BrokerHeartbeatResponse(is_caught_up=is_caught_up, is_fenced=broker.is_fenced),
            )

        try:
            may_go = request.want_shut_down and await self.controlled_shutdown.grant(
                BrokerId(request.broker_id), request.broker_epoch
            )
            response = await self.store.execute(decide)
        except ApiError as error:
            return BrokerHeartbeatResponse(error_code=error.code)
        response.should_shut_down = may_go
        return response
