"""AlterConfigs (API 33): replace the settings of resources.

Settings that the request leaves out fall back to their defaults; IncrementalAlterConfigs changes
single settings.
"""

from ottla.wire.schema import Message, Struct, array, boolean, int8, int16, int32, string


class AlterableConfig(Struct):
    """A setting to keep."""

    name: str = string()
    value: str | None = string(nullable_since=0)


class AlterConfigsResource(Struct):
    """A resource, with all the settings it shall have."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Message, versions=(0, 2), flexible_since=2):
    """Replace the settings of these resources."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """Whether one resource's settings were replaced."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Message, versions=(0, 2), flexible_since=2):
    """The outcome of the replacement."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
