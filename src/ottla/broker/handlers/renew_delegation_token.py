"""RenewDelegationToken v1-v2: refused with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

Kafka refuses delegation token requests on PLAINTEXT listeners with this error, before it checks
whether it has a secret key for tokens. This broker has no other listeners yet.
"""

from dataclasses import dataclass

from ottla.broker.requests.request_context import RequestContext
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

VERSIONS = range(1, 3)


@dataclass(frozen=True, slots=True)
class RenewDelegationTokenHandler:
    """Answers RenewDelegationToken."""

    async def handle(
        self, _context: RequestContext, _request: RenewDelegationTokenRequest
    ) -> RenewDelegationTokenResponse:
        """Refuse: no token exists."""
        return RenewDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1
        )
