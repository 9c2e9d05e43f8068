"""Connection limits come from the configuration, and -1 means no limit."""

import sys

from ottla.broker.transport.connection_limits import ConnectionLimits
from ottla.model.settings.broker_config import BrokerConfig


def test_every_limit_that_can_be_set_is_taken_over() -> None:
    limits = ConnectionLimits.from_config(
        BrokerConfig.parse(
            {
                "socket.request.max.bytes": "1",
                "max.connections": "2",
                "max.connections.per.ip": "3",
                "connections.max.idle.ms": "4",
                "queued.max.request.bytes": "5",
                "socket.send.buffer.bytes": "6",
            }
        )
    )
    assert (limits.frame_bytes_max, limits.connections_max) == (1, 2)
    assert (limits.connections_per_address_max, limits.idle_ms_max) == (3, 4)
    assert (limits.request_bytes_max, limits.send_buffer_bytes) == (5, 6)


def test_minus_one_is_no_limit() -> None:
    settings = {"connections.max.idle.ms": "-1", "queued.max.request.bytes": "-1"}
    limits = ConnectionLimits.from_config(BrokerConfig.parse(settings))
    assert (limits.idle_ms_max, limits.request_bytes_max) == (sys.maxsize, sys.maxsize)
