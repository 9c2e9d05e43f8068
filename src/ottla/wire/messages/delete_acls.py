"""DeleteAcls (API 31): remove access control rules.

Each filter removes all the rules it matches; a null field matches anything. Prefix patterns
came with version 1 (KIP-290), the user resource type with 3.
"""

from ottla.wire.schema import Message, Struct, array, int8, int16, int32, string


class DeleteAclsFilter(Struct):
    """A filter that selects the rules to delete."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable_since=0)
    pattern_type_filter: int = int8(default=3, since=1)
    principal_filter: str | None = string(nullable_since=0)
    host_filter: str | None = string(nullable_since=0)
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsRequest(Message, versions=(0, 3), flexible_since=2):
    """Remove the rules that match these filters."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsMatchingAcl(Struct):
    """A rule that matched, and whether it is gone."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3, since=1)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsFilterResult(Struct):
    """The rules that a filter matched."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


class DeleteAclsResponse(Message, versions=(0, 3), flexible_since=2):
    """The rules that were removed, by filter."""

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
