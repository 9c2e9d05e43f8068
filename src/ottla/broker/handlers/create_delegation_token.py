"""CreateDelegationToken v1-v3: refused with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

Kafka refuses delegation token requests on PLAINTEXT listeners with this error, before it checks
whether it has a secret key for tokens. This broker has no other listeners yet.
"""

from dataclasses import dataclass

from ottla.broker.requests.request_context import RequestContext
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

VERSIONS = range(1, 4)
_REQUESTER_SINCE = 3


@dataclass(frozen=True, slots=True)
class CreateDelegationTokenHandler:
    """Answers CreateDelegationToken."""

    async def handle(
        self, context: RequestContext, request: CreateDelegationTokenRequest
    ) -> CreateDelegationTokenResponse:
        """Refuse, and name the principals as Kafka does."""
        kind, _, name = context.principal.partition(":")
        has_requester = context.api_version >= _REQUESTER_SINCE
        return CreateDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            principal_type=request.owner_principal_type or kind,
            principal_name=request.owner_principal_name or name,
            token_requester_principal_type=kind if has_requester else "",
            token_requester_principal_name=name if has_requester else "",
            issue_timestamp_ms=-1,
            expiry_timestamp_ms=-1,
            max_timestamp_ms=-1,
        )
