"""CreateAcls (API 30): add access control rules.

Prefix patterns came with version 1 (KIP-290), the user resource type with 3. The results are in
the order of the request.
"""

from ottla.wire.schema import Message, Struct, array, int8, int16, int32, string


class AclCreation(Struct):
    """A rule to add."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3, since=1)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Message, versions=(0, 3), flexible_since=2):
    """Add these rules."""

    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    """Whether one rule was added."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


class CreateAclsResponse(Message, versions=(0, 3), flexible_since=2):
    """One result per rule."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
