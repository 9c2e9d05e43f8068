"""DescribeUserScramCredentials (API 50): list users' SCRAM credentials.

Null users ask for all (KIP-554). Mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512. Salts and
passwords are never shown.
"""

from ottla.wire.schema import Message, Struct, array, int8, int16, int32, string


class UserName(Struct):
    """A user to describe the credentials of."""

    name: str = string()


class DescribeUserScramCredentialsRequest(Message, versions=(0, 0), flexible_since=0):
    """List the credentials of these users."""

    users: list[UserName] | None = array(UserName, nullable_since=0)


class CredentialInfo(Struct):
    """One credential, without its secrets."""

    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    """The credentials of one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Message, versions=(0, 0), flexible_since=0):
    """The credentials that were found."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
