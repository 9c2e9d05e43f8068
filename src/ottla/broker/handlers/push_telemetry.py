"""PushTelemetry v0: take the metrics of a client (KIP-714)."""

from dataclasses import dataclass

from ottla.broker.describing.client_telemetry import ClientTelemetry
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

VERSIONS = range(1)


@dataclass(frozen=True, slots=True)
class PushTelemetryHandler:
    """Answers PushTelemetry."""

    telemetry: ClientTelemetry

    async def handle(
        self, context: RequestContext, request: PushTelemetryRequest
    ) -> PushTelemetryResponse:
        """Hand the metrics on, if they are in order."""
        try:
            self.telemetry.push(context, request)
        except ApiError as error:
            return PushTelemetryResponse(error_code=error.code)
        return PushTelemetryResponse()
