"""A request to the leader's registry: one connection, one request, one response.

It reads responses of this registry's own server only: a status line, headers, Content-Length.
"""

import asyncio
from contextlib import suppress
from ssl import SSLContext
from typing import Final
from urllib.parse import urlsplit

from ottla.registry.http_messages import HEAD_BYTES_MAX, HttpRequest, HttpResponse

RESPONSE_BYTES_MAX: Final = 8 << 20
_PASSED_HEADERS: Final = frozenset(
    {
        "accept",
        "authorization",
        "confluent-accept-unknown-properties",
        "content-type",
        "x-ottla-hops",
    }
)


class Forwarder:
    """Sends requests to registries of other brokers."""

    def __init__(self, ssl: SSLContext | None = None) -> None:
        self._ssl = ssl

    async def __call__(self, url: str, request: HttpRequest) -> HttpResponse:
        """Send a request and return the response; OSError if that fails."""
        address = urlsplit(url)
        if address.hostname is None:
            raise OSError(f"{url} is not the URL of a registry")
        is_secure = address.scheme == "https"
        port = address.port or (443 if is_secure else 80)
        reader, writer = await asyncio.open_connection(
            address.hostname, port, ssl=self._ssl if is_secure else None, limit=HEAD_BYTES_MAX
        )
        try:
            writer.write(_encoded(address.netloc, request))
            await writer.drain()
            return await _response(reader)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as broken:
            raise OSError(f"{url} did not send a whole response") from broken
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


def _encoded(host: str, request: HttpRequest) -> bytes:
    lines = [
        f"{request.method} {request.target} HTTP/1.1",
        f"Host: {host.rpartition('@')[2]}",
        "Connection: close",
        f"Content-Length: {len(request.body)}",
    ]
    lines += [
        f"{name}: {value}" for name, value in request.headers.items() if name in _PASSED_HEADERS
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + request.body


async def _response(reader: asyncio.StreamReader) -> HttpResponse:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status_line, *lines = head.rstrip("\r\n").split("\r\n")
    version, status, *_ = status_line.split(" ", 2)
    if not version.startswith("HTTP/1."):
        raise ValueError(version)
    headers = dict(_header(line) for line in lines)
    length = int(headers.pop("Content-Length", "0"))
    if not 0 <= length <= RESPONSE_BYTES_MAX:
        raise ValueError(length)
    headers.pop("Connection", None)
    body = await reader.readexactly(length)
    content_type = headers.pop("Content-Type", None)
    return HttpResponse(int(status), body, content_type, tuple(headers.items()))


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name, value.strip()
