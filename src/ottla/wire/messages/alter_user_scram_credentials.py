"""AlterUserScramCredentials (API 51): set or delete users' SCRAM credentials.

Mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512 (KIP-554). The client salts the password, so
the plain one never travels.
"""

from ottla.wire.schema import Message, Struct, array, int8, int16, int32, octets, string


class ScramCredentialDeletion(Struct):
    """A credential to delete."""

    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    """A credential to create or to replace."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = octets()
    salted_password: bytes = octets()


class AlterUserScramCredentialsRequest(Message, versions=(0, 0), flexible_since=0):
    """Make these changes to credentials."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    """Whether one user's credentials were changed."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


class AlterUserScramCredentialsResponse(Message, versions=(0, 0), flexible_since=0):
    """One result per user."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
