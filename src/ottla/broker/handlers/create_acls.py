"""CreateAcls v1-v3: each rule is refused with SECURITY_DISABLED.

A Kafka broker without an authorizer does the same.
"""

from dataclasses import dataclass

from ottla.broker.requests.no_security import NO_AUTHORIZER
from ottla.broker.requests.request_context import RequestContext
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

VERSIONS = range(1, 4)


@dataclass(frozen=True, slots=True)
class CreateAclsHandler:
    """Answers CreateAcls."""

    async def handle(
        self, _context: RequestContext, request: CreateAclsRequest
    ) -> CreateAclsResponse:
        """Refuse every rule of the request."""
        refused = AclCreationResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
        )
        return CreateAclsResponse(results=[refused] * len(request.creations))
