"""ControllerRegistration (API 70): register a controller with the active controller.

Sent by every controller, the active one included, so that its addresses and features are known
(KIP-919).
"""

from ottla.wire.schema import Message, Struct, array, boolean, int16, int32, string, uint16, uuid


class Listener(Struct):
    """An address of the controller, on one listener."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class Feature(Struct):
    """The levels of one feature that the controller supports."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class ControllerRegistrationRequest(Message, versions=(0, 0), flexible_since=0):
    """Take note of this controller."""

    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)


class ControllerRegistrationResponse(Message, versions=(0, 0), flexible_since=0):
    """Whether the controller was registered."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
