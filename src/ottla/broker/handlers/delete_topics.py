"""DeleteTopics v1-v6: delete topics, by name or, since version 6, by id.

With delete.topic.enable=false they are refused: TOPIC_DELETION_DISABLED, which clients know since
version 3.
"""

from dataclasses import dataclass

from ottla.broker.controller.metadata_propagation import Spread, nobody
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

VERSIONS = range(1, 7)
_DISABLED_SINCE = 3
_STATES_SINCE = 6


@dataclass(frozen=True, slots=True)
class DeleteTopicsHandler:
    """Answers DeleteTopics."""

    store: MetadataStore
    is_enabled: bool = True
    spread: Spread = nobody

    async def handle(
        self, context: RequestContext, request: DeleteTopicsRequest
    ) -> DeleteTopicsResponse:
        """Let the controller decide; before the response all brokers know of the deletion."""
        wanted = request.topics
        if context.api_version < _STATES_SINCE:
            wanted = [DeleteTopicState(name=name) for name in request.topic_names]
        try:
            self._check_enabled(context.api_version)
            results = await self.store.execute(lambda controller: controller.delete_topics(wanted))
            await self.spread((one.error_code for one in results), request.timeout_ms)
        except ApiError as error:  # which concerns them all
            results = [
                DeletableTopicResult(name=one.name, topic_id=one.topic_id, error_code=error.code)
                for one in wanted
            ]
        return DeleteTopicsResponse(responses=results)

    def _check_enabled(self, version: int) -> None:
        if not self.is_enabled:
            is_known = version >= _DISABLED_SINCE
            code = ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST
            raise ApiError(code, "delete.topic.enable is false")
