"""DescribeConfigs (API 32): read the settings of topics, brokers and other resources.

Resource types: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group. Null keys ask
for all settings. Synonyms came with version 1, types and documentation with 3.
"""

from ottla.wire.schema import Message, Struct, array, boolean, int8, int16, int32, string


class DescribeConfigsResource(Struct):
    """A resource, and which of its settings are wanted."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array("string", nullable_since=0)


class DescribeConfigsRequest(Message, versions=(0, 4), flexible_since=4):
    """Show the settings of these resources."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(since=1)
    include_documentation: bool = boolean(since=3)


class DescribeConfigsSynonym(Struct):
    """Another setting that the value could come from."""

    name: str = string(since=1)
    value: str | None = string(since=1, nullable_since=0)
    source: int = int8(since=1)


class DescribeConfigsResourceResult(Struct):
    """The settings of one resource, with their sources."""

    name: str = string()
    value: str | None = string(nullable_since=0)
    read_only: bool = boolean()
    is_default: bool = boolean(until=1)
    config_source: int = int8(default=-1, since=1, ignorable=True)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, since=1, ignorable=True)
    config_type: int = int8(since=3, ignorable=True)
    documentation: str | None = string(since=3, nullable_since=0, ignorable=True)


class DescribeConfigsResult(Struct):
    """The settings of one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Message, versions=(0, 4), flexible_since=4):
    """The settings that were asked for."""

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
