"""BrokerRegistration (API 62): register a starting broker with the controller.

The broker epoch in the response goes into its later requests (KIP-631). Version 2 adds the log
directories (KIP-858), version 3 the epoch that a cleanly stopped broker had last (KIP-966).
"""

from ottla.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class Listener(Struct):
    """An address of the broker, on one listener."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class Feature(Struct):
    """The levels of one feature that the broker supports."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class BrokerRegistrationRequest(Message, versions=(0, 4), flexible_since=0):
    """Admit this broker to the cluster."""

    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable_since=0)
    is_migrating_zk_broker: bool = boolean(since=1)
    log_dirs: list[bytes] = array("uuid", since=2, ignorable=True)
    previous_broker_epoch: int = int64(default=-1, since=3, ignorable=True)


class BrokerRegistrationResponse(Message, versions=(0, 4), flexible_since=0):
    """The epoch given to the broker, or why it was refused."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)
