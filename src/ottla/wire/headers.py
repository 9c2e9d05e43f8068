"""Request and response headers, written by hand because every request pays for them.

The header's version follows from the version of the message: flexible messages have flexible
headers. The response to ApiVersions always has header version 0, because the client does not yet
know the versions of the broker (KIP-511). The client id keeps its two-byte length even in flexible
headers.
"""

import struct
from typing import Final, NamedTuple

from ottla.wire.api_key import ApiKey
from ottla.wire.apis import api_of
from ottla.wire.primitives import read_tags, read_uvarint, write_tags
from ottla.wire.protocol_error import ProtocolError

HEADER_TAGS_MAX: Final = 64
"""Headers are read before authentication: more tagged fields than this are abuse."""
_FIRST: Final = struct.Struct(">hhi")
_LENGTH: Final = struct.Struct(">h")
_CORRELATION_ID: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\0"


class RequestHeader(NamedTuple):
    """The header of a request: API, version, and the correlation id of its response."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None
    tags: dict[int, bytes] | None = None


class ResponseHeader(NamedTuple):
    """The header of a response."""

    correlation_id: int
    tags: dict[int, bytes] | None = None


def request_header_version(api_key: int, api_version: int) -> int:
    """Return the header version of a request: 1, or 2 if the request is flexible.

    Version 0, without the client id, belongs to a removed API; it can still be read.
    """
    return 2 if api_version >= api_of(api_key).request.flexible_since else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """Return the header version of a response: 0, or 1 if the response is flexible."""
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return 1 if api_version >= api_of(api_key).response.flexible_since else 0


def read_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """Read the header of a request, and return it with the position of the body.

    An unknown version is not an error here: the response needs the correlation id.
    """
    if len(frame) < _FIRST.size:
        raise ProtocolError(f"a request of {len(frame)} bytes")
    api_key, api_version, _ = _FIRST.unpack_from(frame)
    try:
        version = request_header_version(api_key, api_version)
    except KeyError:
        raise ProtocolError(f"unknown API {api_key}, version {api_version}") from None
    return read_request_header_of_version(version, frame)


def read_request_header_of_version(version: int, frame: memoryview) -> tuple[RequestHeader, int]:
    """Read a request header of version 0, 1 or 2."""
    try:
        api_key, api_version, correlation_id = _FIRST.unpack_from(frame)
        position = _FIRST.size
        client_id = tags = None
        if version >= 1:
            client_id, position = _read_client_id(frame, position)
        if version >= 2:
            tags, position = _read_header_tags(frame, position)
    except (ValueError, IndexError, struct.error) as error:
        raise ProtocolError(f"request header v{version}: {error}") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id, tags), position


def write_request_header(header: RequestHeader, version: int) -> bytes:
    """Write a request header of version 0, 1 or 2."""
    out = [_FIRST.pack(header.api_key, header.api_version, header.correlation_id)]
    if version >= 1:
        name = b"" if header.client_id is None else header.client_id.encode()
        out += (_LENGTH.pack(-1 if header.client_id is None else len(name)), name)
    if version >= 2:
        _write_header_tags(out, header.tags)
    return b"".join(out)


def read_response_header(version: int, frame: memoryview) -> tuple[ResponseHeader, int]:
    """Read a response header of version 0 or 1, and return it with the position of the body."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        if version == 0:
            return ResponseHeader(correlation_id), _CORRELATION_ID.size
        tags, position = _read_header_tags(frame, _CORRELATION_ID.size)
    except (ValueError, IndexError, struct.error) as error:
        raise ProtocolError(f"response header v{version}: {error}") from None
    return ResponseHeader(correlation_id, tags), position


def write_response_header(header: ResponseHeader, version: int) -> bytes:
    """Write a response header of version 0 or 1."""
    out = [_CORRELATION_ID.pack(header.correlation_id)]
    if version >= 1:
        _write_header_tags(out, header.tags)
    return b"".join(out)


def plain_response_header(correlation_id: int, version: int) -> bytes:
    """Write a response header of version 0 or 1 without tags, as nearly every response has."""
    number = _CORRELATION_ID.pack(correlation_id)
    return number if version == 0 else number + _NO_TAGS


def _read_client_id(frame: memoryview, position: int) -> tuple[str | None, int]:
    (size,) = _LENGTH.unpack_from(frame, position)
    begin = position + _LENGTH.size
    if size == -1:
        return None, begin
    if not 0 <= size <= len(frame) - begin:
        raise ValueError(f"a client id of {size} bytes, {len(frame) - begin} are left")
    return str(frame[begin : begin + size], "utf-8"), begin + size


def _read_header_tags(frame: memoryview, position: int) -> tuple[dict[int, bytes] | None, int]:
    if frame[position] == 0:
        return None, position + 1
    count, position = read_uvarint(frame, position)
    if count > HEADER_TAGS_MAX:
        raise ValueError(f"{count} tagged fields, the limit is {HEADER_TAGS_MAX}")
    return read_tags(frame, position, count)


def _write_header_tags(out: list[bytes], tags: dict[int, bytes] | None) -> None:
    if tags is None:
        out.append(_NO_TAGS)
    else:
        write_tags(out.append, tags)
