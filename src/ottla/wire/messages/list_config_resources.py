"""ListConfigResources (API 74): list the resources that can have settings.

Version 0 was ListClientMetricsResources and knows only those (KIP-1000). Since version 1 the
types can be chosen; an empty list asks for all (KIP-1142).
"""

from ottla.wire.schema import Message, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Message, versions=(0, 1), flexible_since=0):
    """List the resources of these types."""

    resource_types: list[int] = array("int8", since=1)


class ConfigResource(Struct):
    """A resource that can have settings."""

    resource_name: str = string()
    resource_type: int = int8(default=16, since=1, ignorable=True)


class ListConfigResourcesResponse(Message, versions=(0, 1), flexible_since=0):
    """The resources that were found."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
