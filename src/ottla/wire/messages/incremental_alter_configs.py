"""IncrementalAlterConfigs (API 44): change single settings of resources.

Operations: 0 set, 1 delete, 2 append, 3 subtract; the last two are for lists (KIP-339).
Settings not named stay as they are, unlike with AlterConfigs.
"""

from ottla.wire.schema import Message, Struct, array, boolean, int8, int16, int32, string


class AlterableConfig(Struct):
    """A change to one setting."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable_since=0)


class AlterConfigsResource(Struct):
    """A resource, and the changes to its settings."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Message, versions=(0, 1), flexible_since=1):
    """Make these changes, or only check that they could be made."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """Whether one resource was changed."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Message, versions=(0, 1), flexible_since=1):
    """The outcome of the changes."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
