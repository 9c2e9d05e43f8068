"""AlterClientQuotas v0-v1: each entity is refused with UNSUPPORTED_VERSION and a message.

Kafka sets quotas here. A quota that is accepted but not enforced would be worse than an error.
"""

from dataclasses import dataclass

from ottla.broker.requests.no_security import NO_QUOTAS
from ottla.broker.requests.request_context import RequestContext
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntry,
)

VERSIONS = range(2)


@dataclass(frozen=True, slots=True)
class AlterClientQuotasHandler:
    """Answers AlterClientQuotas."""

    async def handle(
        self, _context: RequestContext, request: AlterClientQuotasRequest
    ) -> AlterClientQuotasResponse:
        """Refuse every entity of the request."""
        return AlterClientQuotasResponse(
            entries=[
                AlterClientQuotasResponseEntry(
                    error_code=ErrorCode.UNSUPPORTED_VERSION,
                    error_message=NO_QUOTAS,
                    entity=entry.entity,
                )
                for entry in request.entries
            ]
        )
