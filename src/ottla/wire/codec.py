"""Encodes and decodes whole frames: requests and responses, for brokers and clients.

Large messages are handled in slices: generators that suspend after each item of an array. The
reader and the writer in C are fast and cannot be interrupted, so they handle messages with few
items only. Larger messages go through the generated code, which suspends as often as the caller
likes. Neither does I/O or reads a clock: the caller decides when to continue.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, TypeVar

from ottla.model.error_code import ErrorCode
from ottla.wire.apis import api_of
from ottla.wire.frames import frame_prefix
from ottla.wire.headers import (
    RequestHeader,
    ResponseHeader,
    plain_response_header,
    read_response_header,
    request_header_version,
    response_header_version,
    write_request_header,
)
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.reading import (
    NO_LIMIT,
    READING_ERRORS,
    TooManyItemsError,
    decode,
    explained,
    quickest_reader,
    read,
    reader_for,
    sliced_reader_for,
    wrong_end,
)
from ottla.wire.schema import Message, Struct
from ottla.wire.writing import (
    COPIED_BYTES_MAX,
    WRITING_ERRORS,
    encode,
    encode_if_small,
    size_of,
    sliced_writer_for,
    write,
)
from ottla.wire.writing import explained as explained_writing

ODD_BYTES_MAX: Final = 1 << 12
"""Up to this size, the generated reader reads messages that the C reader declines in one go."""
M = TypeVar("M", bound=Message)

ITEMS_PER_PIECE: Final = 100
_PLAIN: Final = (bytes, bytearray, memoryview)


def read_if_short(
    cls: type[M], version: int, buffer: memoryview, position: int, items_max: int
) -> M | None:
    """Read a message as `read` does; None if all its arrays together have more items.

    None as well if it is long and has tagged fields, or is unsound. Bytes behind it are left alone.
    """
    reader = cls.readers.get(version) or quickest_reader(cls, version)
    try:
        found = reader(buffer, position, NO_LIMIT, items_max)
        if found is None and len(buffer) - position <= ODD_BYTES_MAX:
            found = reader_for(cls, version).function(buffer, position, NO_LIMIT, items_max)
    except TooManyItemsError:
        return None
    except READING_ERRORS as error:
        raise explained(cls, version, error, reader_for(cls, version)) from None
    if found is None:
        return None
    value, end = found
    if end > len(buffer):
        raise wrong_end(cls, version, end, buffer)
    return value  # type: ignore[no-any-return]


def read_in_slices(
    cls: type[M],
    version: int,
    buffer: memoryview,
    position: int,
    *,
    memory_max: int,
    items_max: int,
) -> Iterator[M | None]:
    """Read a message: yield None after each item, and the message at last.

    Raises MessageTooLargeError before it makes an item of an array that breaks a limit, and
    ProtocolError for bytes that are no such message.
    """
    reader = sliced_reader_for(cls, version)
    try:
        for found in reader.function(buffer, position, memory_max, items_max):
            if found is None:
                yield None
    except READING_ERRORS as error:
        raise explained(cls, version, error, reader) from None
    value, end = found
    if end > len(buffer):
        raise wrong_end(cls, version, end, buffer)
    yield value


def write_in_slices(
    value: Message, version: int, append: Callable[[Any], object]
) -> Iterator[None]:
    """Write a message as `write` does, and yield after each item of an array."""
    writer = sliced_writer_for(type(value), version)
    try:
        yield from writer.function(value, append)
    except WRITING_ERRORS as error:
        raise explained_writing(value, version, error, writer) from error


def decode_request(header: RequestHeader, frame: memoryview, position: int) -> Message:
    """Read the request that follows its header.

    Trailing bytes are ignored, as in Kafka: librdkafka 2.16 sends three of them with Metadata v13.
    """
    return read(_request_class(header), header.api_version, frame, position)[0]


def decode_short_request(
    header: RequestHeader, frame: memoryview, position: int, items_max: int
) -> Message | None:
    """Read a request as above; None if its arrays have more items, or it is long and odd."""
    return read_if_short(_request_class(header), header.api_version, frame, position, items_max)


def decode_request_in_slices(
    header: RequestHeader, frame: memoryview, position: int, *, memory_max: int, items_max: int
) -> Iterator[Message | None]:
    """Read a request as above: yield None after each item of an array, and the request at last."""
    return read_in_slices(
        _request_class(header),
        header.api_version,
        frame,
        position,
        memory_max=memory_max,
        items_max=items_max,
    )


def _request_class(header: RequestHeader) -> type[Message]:
    cls = api_of(header.api_key).request
    first, last = cls.versions
    if not first <= header.api_version <= last:
        raise ProtocolError(
            f"{cls.__name__} v{header.api_version}, known are {first} to {last}",
            ErrorCode.UNSUPPORTED_VERSION,
        )
    return cls


def encode_request(header: RequestHeader, request: Message) -> list[Any]:
    """Write a whole frame, length first, as a list of pieces."""
    version = request_header_version(header.api_key, header.api_version)
    return _frame(write_request_header(header, version), request, header.api_version)


def decode_response(
    api_key: int, api_version: int, frame: memoryview
) -> tuple[ResponseHeader, Message]:
    """Read the response to a request of this API and version."""
    version = response_header_version(api_key, api_version)
    header, position = read_response_header(version, frame)
    return header, decode(api_of(api_key).response, api_version, frame, position)


def encode_response(
    api_key: int, api_version: int, correlation_id: int, response: Message
) -> list[Any]:
    """Write a whole frame, length first, as a list of pieces.

    Large record batches are separate pieces, the same objects as in the response; everything
    between two of them is one piece of bytes.
    """
    version = response_header_version(api_key, api_version)
    return _frame(plain_response_header(correlation_id, version), response, api_version)


def encode_short_response(
    api_key: int, api_version: int, correlation_id: int, response: Message, items_max: int
) -> list[Any] | None:
    """Write a response as above; None if its arrays have more items, or it has large batches."""
    body = encode_if_small(response, api_version, items_max)
    if body is None:
        return None
    version = response_header_version(api_key, api_version)
    header = plain_response_header(correlation_id, version)
    return [frame_prefix(len(header) + len(body)) + header + body]


def encode_response_in_slices(
    api_key: int, api_version: int, correlation_id: int, response: Message, out: list[Any]
) -> Iterator[None]:
    """Write a response as above, at the end of a list; yield after some items of arrays.

    The list may be sent only after the generator ends: its first piece has the total size.
    """
    version = response_header_version(api_key, api_version)
    header = plain_response_header(correlation_id, version)
    size_bytes = len(header)
    out.append(b"")
    pieces: list[Any] = []
    count = 0
    for _ in write_in_slices(response, api_version, pieces.append):
        count += 1
        if count == ITEMS_PER_PIECE:
            size_bytes += _move(pieces, out)
            count = 0
            yield
    size_bytes += _move(pieces, out)
    out[0] = frame_prefix(size_bytes) + header


def _move(pieces: list[Any], out: list[Any]) -> int:
    """Join the written pieces and move them; return their size. Many small objects become one."""
    size_bytes = size_of(pieces)
    out += _merged(pieces, size_bytes)
    pieces.clear()
    return size_bytes


def _frame(header: bytes, message: Message, api_version: int) -> list[Any]:
    whole = encode_if_small if carries_batches(type(message)) else encode
    body = whole(message, api_version)
    if body is not None:
        return [frame_prefix(len(header) + len(body)) + header + body]
    pieces = write(message, api_version)
    size_bytes = size_of(pieces)
    return _merged([frame_prefix(len(header) + size_bytes) + header, *pieces], size_bytes)


def _merged(pieces: list[Any], size_bytes: int) -> list[Any]:
    """Join neighbouring small `bytes` pieces; large ones and other objects stay as they are."""
    if size_bytes <= COPIED_BYTES_MAX:
        try:
            return [b"".join(pieces)]
        except TypeError:  # some are not bytes
            pass
    merged: list[Any] = []
    start = 0
    for end, piece in enumerate(pieces):
        if isinstance(piece, _PLAIN) and len(piece) <= COPIED_BYTES_MAX:
            continue
        if start < end:
            merged.append(b"".join(pieces[start:end]))
        merged.append(piece)
        start = end + 1
    if start < len(pieces):
        merged.append(b"".join(pieces[start:]))
    return merged


@cache
def carries_batches(cls: type[Struct]) -> bool:
    """Whether a message has a field of record batches, at any depth."""
    return any(
        field.kind == "records" or (field.struct is not None and carries_batches(field.struct))
        for field in cls.fields
    )
