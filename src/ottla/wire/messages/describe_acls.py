"""DescribeAcls (API 29): find access control rules.

A null filter matches anything. Prefix patterns came with version 1 (KIP-290), the user resource
type with 3.
"""

from ottla.wire.schema import Message, Struct, array, int8, int16, int32, string


class DescribeAclsRequest(Message, versions=(0, 3), flexible_since=2):
    """Find the rules that match."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable_since=0)
    pattern_type_filter: int = int8(default=3, since=1)
    principal_filter: str | None = string(nullable_since=0)
    host_filter: str | None = string(nullable_since=0)
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Struct):
    """A rule: principal, host, operation, and whether it is allowed or denied."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Struct):
    """A resource, or a prefix of them, with the rules for it."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3, since=1)
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Message, versions=(0, 3), flexible_since=2):
    """The rules that were found, by resource."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
