"""DescribeDelegationToken v1-v3: refused with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

Kafka refuses delegation token requests on PLAINTEXT listeners with this error, before it checks
whether it has a secret key for tokens. This broker has no other listeners yet.
"""

from dataclasses import dataclass

from ottla.broker.requests.request_context import RequestContext
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

VERSIONS = range(1, 4)


@dataclass(frozen=True, slots=True)
class DescribeDelegationTokenHandler:
    """Answers DescribeDelegationToken."""

    async def handle(
        self, _context: RequestContext, _request: DescribeDelegationTokenRequest
    ) -> DescribeDelegationTokenResponse:
        """Refuse: no token exists."""
        return DescribeDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        )
