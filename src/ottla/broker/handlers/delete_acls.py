"""DeleteAcls v1-v3: each filter is refused with SECURITY_DISABLED.

A Kafka broker without an authorizer does the same.
"""

from dataclasses import dataclass

from ottla.broker.requests.no_security import NO_AUTHORIZER
from ottla.broker.requests.request_context import RequestContext
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

VERSIONS = range(1, 4)


@dataclass(frozen=True, slots=True)
class DeleteAclsHandler:
    """Answers DeleteAcls."""

    async def handle(
        self, _context: RequestContext, request: DeleteAclsRequest
    ) -> DeleteAclsResponse:
        """Refuse every filter of the request."""
        refused = DeleteAclsFilterResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
        )
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
