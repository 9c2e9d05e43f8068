"""AlterConfigs v0-v2: replace all settings of resources, or only validate the request.

For all resources with stored settings: topics, brokers, groups and client metrics, but not loggers.
Settings that are not named return to their defaults; IncrementalAlterConfigs changes single ones.
"""

from dataclasses import dataclass

from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.machines.controller.configs import ConfigOutcome
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

VERSIONS = range(3)


@dataclass(frozen=True, slots=True)
class AlterConfigsHandler:
    """Answers AlterConfigs."""

    store: MetadataStore

    async def handle(
        self, _context: RequestContext, request: AlterConfigsRequest
    ) -> AlterConfigsResponse:
        """Let the controller decide; its changes are effective before the response."""
        try:
            outcomes = await self.store.execute(
                lambda controller: controller.alter_configs(
                    request.resources, validate_only=request.validate_only
                )
            )
        except ApiError as error:  # of the metadata log, which concerns them all
            outcomes = [
                ConfigOutcome(one.resource_type, one.resource_name, error)
                for one in request.resources
            ]
        return AlterConfigsResponse(responses=[_response(outcome) for outcome in outcomes])


def _response(outcome: ConfigOutcome) -> AlterConfigsResourceResponse:
    error = outcome.error
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.detail,
        resource_type=outcome.resource_type,
        resource_name=outcome.resource_name,
    )
