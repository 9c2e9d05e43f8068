"""The reasons of closed connections, by which a server counts them."""

from enum import StrEnum


class CloseReason(StrEnum):
    """Why a connection ended, or was not let in."""

    PEER_CLOSED = "peer-closed"
    INVALID_FRAME = "invalid-frame"
    """A length out of bounds, or a request that the protocol does not know."""
    REQUEST_FAILED = "request-failed"
    """A bug in the request's handling; it is logged."""
    SEND_FAILED = "send-failed"
    """The response could not be read from the disk; the log has the reason."""
    SLOW_FRAME = "slow-frame"
    STALLED = "stalled"
    IDLE = "idle"
    STOPPED = "stopped"
    TOO_MANY_CONNECTIONS = "too-many-connections"
    TOO_MANY_FROM_ADDRESS = "too-many-from-address"
