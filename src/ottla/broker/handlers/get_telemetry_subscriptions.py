"""GetTelemetrySubscriptions v0: which metrics a client is to push, and how often (KIP-714)."""

from dataclasses import dataclass

from ottla.broker.describing.client_telemetry import ClientTelemetry
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

VERSIONS = range(1)


@dataclass(frozen=True, slots=True)
class GetTelemetrySubscriptionsHandler:
    """Answers GetTelemetrySubscriptions."""

    telemetry: ClientTelemetry

    async def handle(
        self, context: RequestContext, request: GetTelemetrySubscriptionsRequest
    ) -> GetTelemetrySubscriptionsResponse:
        """Hold the client against the subscriptions."""
        try:
            return self.telemetry.subscription(context, request.client_instance_id)
        except ApiError as error:
            return GetTelemetrySubscriptionsResponse(error_code=error.code)
