"""DescribeClientQuotas v0-v1: no quotas, because they cannot be set yet."""

from dataclasses import dataclass

from ottla.broker.requests.request_context import RequestContext
from ottla.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

VERSIONS = range(2)


@dataclass(frozen=True, slots=True)
class DescribeClientQuotasHandler:
    """Answers DescribeClientQuotas."""

    async def handle(
        self, _context: RequestContext, _request: DescribeClientQuotasRequest
    ) -> DescribeClientQuotasResponse:
        """Return the empty list for every filter."""
        return DescribeClientQuotasResponse(entries=[])
