"""Messages of HTTP/1.1: parsed heads, bodies that are complete or arrive in pieces, responses.

Nothing here does I/O. A request that breaks RFC 9112, or a limit, is a BadRequestError.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

HEAD_BYTES_MAX: Final = 16 << 10
"""The request line and the headers."""
BODY_BYTES_MAX: Final = 2 << 20
"""Of a body, unless the server has another limit."""
CHUNK_LINE_BYTES_MAX: Final = 256
TRAILER_BYTES_MAX: Final = 4 << 10
UNREAD_PIECES_BYTES_MAX: Final = 256 << 10
"""Of a streamed body; beyond it, input is left to the kernel."""

_REQUEST_LINE = re.compile(r"([A-Z]{1,20}) ([\x21-\x7e]+) HTTP/1\.([01])")
_VISIBLE: Final = r"\x21-\x7e\x80-\xff"
_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HEADER = re.compile(rf"({_NAME}):[ \t]*((?:[{_VISIBLE}]+(?:[ \t]+[{_VISIBLE}]+)*)?)[ \t]*")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?")
_CONTENT_LENGTH = re.compile(r"[0-9]{1,15}")
_SINGLE_HEADERS: Final = frozenset({"content-length", "host", "transfer-encoding", "content-type"})


@dataclass(slots=True)
class HttpRequest:
    """A whole request. Names of headers are in lower case; repeated ones are joined by commas."""

    method: str
    target: str
    """The path and the query, as they were sent."""
    headers: Mapping[str, str]
    body: bytes = b""
    keeps_alive: bool = True
    stream: "BodyStream | None" = None
    """The body as it arrives, if the server streams the bodies of this target; then `body` is
    empty."""
    takes_chunks: bool = True
    """Whether the peer knows chunked bodies: HTTP/1.1."""


class HttpResponse:
    """A whole response. It may be sent many times."""

    __slots__ = ("_head", "body", "headers", "status")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        content_type: str | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.status = status
        self.body = body
        self.headers = tuple(headers)
        if content_type is not None:
            self.headers = ("Content-Type", content_type), *self.headers
        lines = [f"HTTP/1.1 {status} {_phrase(status)}\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in self.headers]
        if status != HTTPStatus.NO_CONTENT:
            lines.append(f"Content-Length: {len(body)}\r\n")
        self._head = "".join(lines).encode("latin-1")

    def encoded(self, *, with_body: bool, keeps_alive: bool) -> bytes:
        """Return the bytes of the response."""
        end = b"\r\n" if keeps_alive else b"Connection: close\r\n\r\n"
        return self._head + end + self.body if with_body else self._head + end


class StreamedResponse:
    """A response with a body that is made while it is sent. It can be sent once.

    An empty piece sends nothing. The generator is closed when the peer goes away; an error in it
    cuts the connection off, so that the peer sees an incomplete body.
    """

    def __init__(self, status: int, pieces: AsyncGenerator[bytes, None], content_type: str) -> None:
        self.status = status
        self.pieces = pieces
        self.content_type = content_type

    def head(self, *, is_chunked: bool, keeps_alive: bool) -> bytes:
        """Return the bytes before the body."""
        lines = [
            f"HTTP/1.1 {self.status} {_phrase(self.status)}",
            f"Content-Type: {self.content_type}",
            "Cache-Control: no-store",
        ]
        if is_chunked:
            lines.append("Transfer-Encoding: chunked")
        if not keeps_alive:
            lines.append("Connection: close")
        return "\r\n".join((*lines, "", "")).encode("latin-1")


AnyResponse = HttpResponse | StreamedResponse


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


class BadRequestError(Exception):
    """The input breaks the protocol or a limit; the connection ends with this status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(slots=True)
class Body:
    """Where the body of a request ends: at a length, or after its last chunk."""

    length: int | None
    chunks: list[bytes]
    bytes_max: int = BODY_BYTES_MAX
    read_bytes: int = 0
    in_trailer: bool = False
    trailer_bytes: int = 0
    is_streamed: bool = False
    is_over: bool = False

    def take(self, buffer: bytearray) -> bytes | None:
        """Take input out of the buffer; return the body once it is complete."""
        if self.length is None:
            return self._take_chunks(buffer)
        if len(buffer) < self.length:
            return None
        body = bytes(memoryview(buffer)[: self.length])
        del buffer[: self.length]
        return body

    def take_piece(self, buffer: bytearray) -> bytes | None:
        """Take a part of a streamed body; empty at its end, None if more input is needed.

        The limit is for each chunk: the whole body may be larger.
        """
        if self.length is not None:
            if self.length == 0:
                return b""
            piece = bytes(memoryview(buffer)[: self.length])
            del buffer[: len(piece)]
            self.length -= len(piece)
            return piece or None
        if self.is_over:
            return b""
        self.is_streamed = True
        complete = self._take_chunks(buffer)
        self.is_over = complete is not None
        piece = b"".join(self.chunks)
        self.chunks.clear()
        self.read_bytes = 0
        return piece or (b"" if self.is_over else None)

    def _take_chunks(self, buffer: bytearray) -> bytes | None:
        while not self.in_trailer:
            end = _line_end(buffer, CHUNK_LINE_BYTES_MAX)
            if end < 0:
                return None
            matched = _CHUNK_SIZE.fullmatch(buffer[:end])
            if matched is None:
                raise BadRequestError(400, "the size of a chunk is not valid")
            size = int(matched[1], 16)
            self.in_trailer = size == 0
            self._check_size(size)
            if self.in_trailer:
                del buffer[: end + 2]
            elif not self._take_chunk(buffer, end + 2, size) or self.is_streamed:
                return None
        return self._take_trailer(buffer)

    def _check_size(self, size: int) -> None:
        if self.read_bytes + size > self.bytes_max:
            raise too_large(self.bytes_max)

    def _take_chunk(self, buffer: bytearray, start: int, size: int) -> bool:
        end = start + size
        if len(buffer) < end + 2:
            return False
        if buffer[end : end + 2] != b"\r\n":
            raise BadRequestError(400, "a chunk does not end with a line break")
        self.chunks.append(bytes(memoryview(buffer)[start:end]))
        self.read_bytes += size
        del buffer[: end + 2]
        if len(self.chunks) > 1024:  # of single bytes, each would cost fifty
            self.chunks = [b"".join(self.chunks)]
        return True

    def _take_trailer(self, buffer: bytearray) -> bytes | None:
        while (end := _line_end(buffer, TRAILER_BYTES_MAX)) >= 0:
            line = buffer[:end].decode("latin-1")
            del buffer[: end + 2]
            if not line:
                return b"".join(self.chunks)
            self.trailer_bytes += end
            if _HEADER.fullmatch(line) is None or self.trailer_bytes > TRAILER_BYTES_MAX:
                raise BadRequestError(400, "the trailer is not valid")
        return None


class BodyStream:
    """The body of a request, in the pieces in which it arrives. One task reads it."""

    def __init__(self, on_room: Callable[[], None]) -> None:
        self._on_room = on_room
        self._pieces: deque[bytes] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._unread_bytes = 0
        self._failure: Exception | None = None
        self._is_over = False

    @property
    def has_room(self) -> bool:
        """Whether more input may be put in."""
        return self._unread_bytes < UNREAD_PIECES_BYTES_MAX

    def put(self, piece: bytes) -> None:
        """Add input; an empty piece ends the body."""
        self._is_over = not piece
        if piece:
            self._pieces.append(piece)
            self._unread_bytes += len(piece)
        self._wake()

    def fail(self, failure: Exception) -> None:
        """End the body with an error for the reader."""
        self._failure = failure
        self._wake()

    async def read(self) -> bytes:
        """Return the next piece, empty at the end; BadRequestError or OSError if there is none."""
        while not self._pieces:
            if self._failure is not None:
                raise self._failure
            if self._is_over:
                return b""
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        piece = self._pieces.popleft()
        self._unread_bytes -= len(piece)
        if self.has_room:
            self._on_room()
        return piece

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


def too_large(bytes_max: int) -> BadRequestError:
    """Return the error of a body above its limit."""
    return BadRequestError(413, f"the body is larger than {bytes_max} bytes")


def _line_end(buffer: bytearray, bytes_max: int) -> int:
    end = buffer.find(b"\r\n", 0, bytes_max)
    if end < 0 and len(buffer) >= bytes_max:
        raise BadRequestError(400, "a line of a chunked body is too long")
    return end


def parse_head(head: str, body_bytes_max: int = BODY_BYTES_MAX) -> tuple[HttpRequest, int | None]:
    """Parse a head without its empty line; return the request, and the length of its body.

    A length of None is a chunked body. BadRequestError if the head is not valid.
    """
    lines = head.split("\r\n")
    matched = _REQUEST_LINE.fullmatch(lines[0])
    if matched is None:
        raise BadRequestError(400, "the request line is not valid")
    method, target, minor = matched.groups()
    headers: dict[str, str] = {}
    for line in lines[1:]:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise BadRequestError(400, "a header is not valid")
        name, value = header[1].lower(), header[2]
        if name in headers:
            if name in _SINGLE_HEADERS:
                raise BadRequestError(400, f"the header {name} is repeated")
            value = f"{headers[name]}, {value}"
        headers[name] = value
    if minor == "1" and "host" not in headers:
        raise BadRequestError(400, "the header Host is missing")
    connection = headers.get("connection", "").lower()
    keeps_alive = "close" not in connection if minor == "1" else "keep-alive" in connection
    request = HttpRequest(
        method, target, headers, keeps_alive=keeps_alive, takes_chunks=minor == "1"
    )
    return request, _body_length(headers, minor, body_bytes_max)


def _body_length(headers: Mapping[str, str], minor: str, bytes_max: int) -> int | None:
    length = headers.get("content-length")
    coding = headers.get("transfer-encoding")
    if coding is not None:
        if length is not None or minor == "0":
            raise BadRequestError(400, "Transfer-Encoding is not valid here")
        if coding.lower() != "chunked":
            raise BadRequestError(501, "the only known Transfer-Encoding is chunked")
        return None
    if length is None:
        return 0
    if _CONTENT_LENGTH.fullmatch(length) is None:
        raise BadRequestError(400, "Content-Length is not valid")
    if int(length) > bytes_max:
        raise too_large(bytes_max)
    return int(length)
