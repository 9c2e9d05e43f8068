"""DescribeUserScramCredentials v0: no credentials, because they cannot be set yet.

A user that is named does not exist: RESOURCE_NOT_FOUND, or DUPLICATE_RESOURCE if the request names
the user twice. Kafka answers the same when it has no credentials.
"""

from collections import Counter
from dataclasses import dataclass

from ottla.broker.requests.request_context import RequestContext
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

VERSIONS = range(1)


@dataclass(frozen=True, slots=True)
class DescribeUserScramCredentialsHandler:
    """Answers DescribeUserScramCredentials."""

    async def handle(
        self, _context: RequestContext, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        """Return the empty list for all users, and one error for each user that is named."""
        count_by_user = Counter(user.name for user in request.users or ())
        return DescribeUserScramCredentialsResponse(
            results=[_result(user, count) for user, count in count_by_user.items()]
        )


def _result(user: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message="the request names this user more than once",
        )
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=ErrorCode.RESOURCE_NOT_FOUND,
        error_message="this user has no SCRAM credentials",
    )
