"""AlterUserScramCredentials v0: each user is refused with UNSUPPORTED_VERSION and a message.

Kafka stores credentials here. This broker has no SASL listeners that could check them.
"""

from dataclasses import dataclass

from ottla.broker.requests.no_security import NO_SCRAM
from ottla.broker.requests.request_context import RequestContext
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

VERSIONS = range(1)


@dataclass(frozen=True, slots=True)
class AlterUserScramCredentialsHandler:
    """Answers AlterUserScramCredentials."""

    async def handle(
        self, _context: RequestContext, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        """Refuse every user of the request, with one result for each."""
        names = [deletion.name for deletion in request.deletions]
        names += [upsertion.name for upsertion in request.upsertions]
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(
                    user=user, error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=NO_SCRAM
                )
                for user in dict.fromkeys(names)
            ]
        )
