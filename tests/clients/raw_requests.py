"""Requests that no client at hand can send, over a socket of their own."""

import socket
import struct
from typing import Any

from ottla.wire.api_key import ApiKey
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.schema import Message

CLIENT_ID = "raw"
Change = tuple[int, str, str | None]
"""Operation (0 set, 1 delete, 2 append, 3 subtract), setting and value."""


class RawConnection:
    """One connection to a broker, as `host:port`."""

    def __init__(self, servers: str) -> None:
        host, port = servers.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=20)

    def __enter__(self) -> "RawConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, key: ApiKey, version: int, request: Message) -> Any:
        """Send a request and return its response."""
        self.send(key, version, request)
        return self.receive(key, version)

    def send(self, key: ApiKey, version: int, request: Message) -> None:
        """Send a request without waiting for its response."""
        header = RequestHeader(key, version, 1, CLIENT_ID)
        self.send_frames(b"".join(encode_request(header, request)))

    def send_frames(self, frames: bytes) -> None:
        """Send requests as they are."""
        self._socket.sendall(frames)

    def receive(self, key: ApiKey, version: int) -> Any:
        """Return the next response."""
        return decode_response(key, version, memoryview(self.receive_frame()))[1]

    def receive_frame(self) -> bytes:
        """Return the next frame, without its length."""
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def alter(self, kind: int, name: str, *changes: Change, validate_only: bool = False) -> Any:
        """Change single settings of a resource, and return its part of the response."""
        configs = [
            AlterableConfig(name=setting, config_operation=operation, value=value)
            for operation, setting, value in changes
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        (answer,) = self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
        return answer

    def _read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = self._socket.recv(count - len(found))
            assert more, "the broker hung up"
            found += more
        return found


def ask(servers: str, key: ApiKey, version: int, request: Message) -> Any:
    """Send one request on a connection of its own."""
    with RawConnection(servers) as connection:
        return connection.ask(key, version, request)


def alter(servers: str, kind: int, name: str, *changes: Change, validate_only: bool = False) -> Any:
    """Change single settings of a resource, and return its part of the response."""
    with RawConnection(servers) as connection:
        return connection.alter(kind, name, *changes, validate_only=validate_only)
