"""DescribeAcls v1-v3: refused with SECURITY_DISABLED.

A Kafka broker without an authorizer does the same.
"""

from dataclasses import dataclass

from ottla.broker.requests.no_security import NO_AUTHORIZER
from ottla.broker.requests.request_context import RequestContext
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

VERSIONS = range(1, 4)


@dataclass(frozen=True, slots=True)
class DescribeAclsHandler:
    """Answers DescribeAcls."""

    async def handle(
        self, _context: RequestContext, _request: DescribeAclsRequest
    ) -> DescribeAclsResponse:
        """Refuse: there are no rules to describe."""
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
        )
