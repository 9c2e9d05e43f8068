"""Who asks, from where, and in which version."""

from typing import Final, NamedTuple

ANONYMOUS: Final = "User:ANONYMOUS"
"""Who asks, as long as nobody has to say."""


class Introduction(NamedTuple):
    """What is known of a client's connection, and what it said of itself as it began."""

    port: int = 0
    software_name: str | None = None
    software_version: str | None = None


NOT_INTRODUCED: Final = Introduction()


class RequestContext(NamedTuple):
    """What a handler may know about a request besides its body."""

    principal: str
    client_id: str | None
    client_address: str
    listener: str
    api_version: int
    received_ms: int
    """On the monotonic clock: deadlines count from here."""
    introduction: Introduction = NOT_INTRODUCED
