"""The context of a request: client, address and version."""

from typing import Final, NamedTuple

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of clients without authentication."""


class Introduction(NamedTuple):
    """The properties of a client's connection, and the client's own name and version."""

    port: int = 0
    software_name: str | None = None
    software_version: str | None = None


NOT_INTRODUCED: Final = Introduction()


class RequestContext(NamedTuple):
    """Everything that a handler may know about a request besides its body."""

    principal: str
    client_id: str | None
    client_address: str
    listener: str
    api_version: int
    received_ms: int
    """On the monotonic clock: deadlines count from here."""
    introduction: Introduction = NOT_INTRODUCED
