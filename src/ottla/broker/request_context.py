"""Who asks, from where, and in which version."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What a handler may know about a request besides its body."""

    principal: str
    client_id: str | None
    client_address: str
    listener: str
    api_version: int
    received_ms: int
    """On the monotonic clock: deadlines count from here."""
