"""Forwards requests for the controller that reach another broker (KIP-590).

The handler of a route for the controller is wrapped: if another broker is the controller, the
request travels there in an Envelope, with its principal and client address. If no controller
answers in time, this broker's own handler does: mostly NOT_CONTROLLER, which clients retry.
"""

import logging
from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.broker.controller.controller_client import ActiveController
from ottla.broker.requests.forwarded_identity import address_bytes, principal_bytes
from ottla.broker.requests.request_context import RequestContext
from ottla.broker.requests.routes import Handle, Route, Routes
from ottla.model.api_error import ApiError
from ottla.rpc.errors import check
from ottla.wire.api_key import ApiKey
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.frames import LENGTH_BYTES
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.envelope import EnvelopeRequest
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.protocol_error import ProtocolError

_CORRELATION_ID: Final = 0
_ALTER_CONFIGS: Final = ApiKey.INCREMENTAL_ALTER_CONFIGS
_BROKER_LOGGER: Final = 8
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Passes requests on to the controller."""

    controller: ActiveController

    def routes(self, routes: Routes) -> dict[int, Route]:
        """Return the same table, with requests for the controller passed on to it."""
        return {
            api_key: replace(route, handle=self._passing_on(api_key, route.handle))
            if route.is_for_controller
            else route
            for api_key, route in routes.items()
        }

    def _passing_on(self, api_key: int, here: Handle) -> Handle:
        async def handle(context: RequestContext, request: Any) -> Any:
            if self.controller.is_here():
                return await here(context, request)
            return await self._pass_on(api_key, here, context, request)

        async def handle_in_parts(
            context: RequestContext, request: IncrementalAlterConfigsRequest
        ) -> IncrementalAlterConfigsResponse:
            if self.controller.is_here():
                answer: IncrementalAlterConfigsResponse = await here(context, request)
                return answer
            return await self._alter_configs(here, context, request)

        return handle_in_parts if api_key == _ALTER_CONFIGS else handle

    async def _pass_on(
        self, api_key: int, here: Handle, context: RequestContext, request: Any
    ) -> Any:
        try:
            answer = await self._ask(api_key, context, request)
        except ApiError as error:
            _log.info("%s: not answered by the controller: %s", ApiKey(api_key).name, error)
            answer = None
        return await here(context, request) if answer is None else answer

    async def _ask(self, api_key: int, context: RequestContext, request: Any) -> Any:
        """Return the controller's response, or None if this broker is the controller.

        Raises ApiError on a timeout, or if the envelope is refused.
        """
        header = RequestHeader(api_key, context.api_version, _CORRELATION_ID, context.client_id)
        envelope = EnvelopeRequest(
            request_data=b"".join(encode_request(header, request))[LENGTH_BYTES:],
            request_principal=principal_bytes(context.principal),
            client_host_address=address_bytes(context.client_address),
        )
        response = await self.controller.forward(envelope)
        if response is None:
            return None
        check(response.error_code, "another broker")
        if response.response_data is None:
            raise ProtocolError("an envelope came back empty")
        data = memoryview(response.response_data)
        return decode_response(api_key, context.api_version, data)[1]

    async def _alter_configs(
        self, here: Handle, context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        """Alter the levels of loggers here, and all other settings at the controller."""
        loggers = [one for one in request.resources if one.resource_type == _BROKER_LOGGER]
        others = [one for one in request.resources if one.resource_type != _BROKER_LOGGER]
        responses: list[AlterConfigsResourceResponse] = []
        if loggers:
            responses += (await here(context, _part(request, loggers))).responses
        if others:
            part = _part(request, others)
            responses += (await self._pass_on(_ALTER_CONFIGS, here, context, part)).responses
        places = {
            (one.resource_type, one.resource_name): place
            for place, one in enumerate(request.resources)
        }
        responses.sort(key=lambda one: places.get((one.resource_type, one.resource_name), -1))
        return IncrementalAlterConfigsResponse(responses=responses)


def _part(
    request: IncrementalAlterConfigsRequest, resources: list[AlterConfigsResource]
) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=request.validate_only)
