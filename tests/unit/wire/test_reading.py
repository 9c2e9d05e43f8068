"""Hostile bytes: one error with its position, and memory in proportion to the frame."""

import tracemalloc
from typing import Any

import pytest

from ottla.wire.apis import API_BY_KEY
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.reading import BUDGET_FLOOR_BYTES, BUDGET_MULTIPLE, decode
from ottla.wire.schema import Field, Message, Struct
from ottla.wire.writing import encode

FRAME_BYTES = 1 << 18
# The budget covers the contents of items; the lists that hold the items come on top.
MEMORY_MULTIPLE_MAX = BUDGET_MULTIPLE + 2


@pytest.mark.parametrize(
    ("version", "raw", "complaint"),
    [
        (9, b"\x00\x00", r"ProduceRequest v9, acks, at byte 1: the bytes end"),
        (9, b"\x05ab", r"ProduceRequest v9, acks, at byte 5: the bytes end"),
        (9, b"\x03\xff\xfe", r"ProduceRequest v9, transactional_id, at byte 1: 'utf-8' codec"),
        (9, bytes(7) + b"\x00", r"ProduceRequest v9, topic_data, at byte 8: null"),
        (9, bytes(7) + b"\xff\xff\xff\xff\x0f", r"topic_data\[\], at byte 12: 4294967294 items"),
        (9, bytes(7) + b"\xff\xff\xff\xff\x10", r"topic_data, at byte 8: a varint of more than 32"),
        (9, b"\x80" * 9, r"transactional_id, at byte 1: a varint of more than 32"),
        (3, b"\xff\xfe" + bytes(20), r"transactional_id, at byte 2: a negative length"),
        (3, b"\xff\xff" + bytes(6) + b"\xff\xff\xff\xff", r"topic_data, at byte 12: null, or"),
        (3, b"\xff\xff" + bytes(6) + b"\x7f\xff\xff\xff", r"2147483647 items claimed"),
    ],
)
def test_the_error_names_the_field_and_the_byte(version: int, raw: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode(ProduceRequest, version, memoryview(raw))


def test_bytes_left_over_are_an_error() -> None:
    raw = encode(MetadataRequest(topics=None), 1)
    with pytest.raises(ProtocolError, match="3 bytes follow MetadataRequest v1 at byte 4"):
        decode(MetadataRequest, 1, memoryview(raw + b"abc"))


def test_a_text_that_reaches_past_the_end_is_an_error_even_when_nothing_follows_it() -> None:
    raw = encode(FetchRequest(rack_id="abcdef"), 11)
    with pytest.raises(ProtocolError, match="FetchRequest v11 ends 2 bytes too early"):
        decode(FetchRequest, 11, memoryview(raw[:-2]))


def test_records_are_a_view_of_the_frame() -> None:
    frame = bytearray(encode(_produce(b"batch"), 9))
    records = decode(ProduceRequest, 9, memoryview(frame)).topic_data[0].partition_data[0].records
    records[0:5] = b"BATCH"
    assert b"BATCH" in frame


def _produce(records: bytes) -> ProduceRequest:
    request = ProduceRequest()
    topic = ProduceRequest.fields[-1].struct
    assert topic is not None
    partition = topic.fields[-1].struct
    assert partition is not None
    request.topic_data = [topic(partition_data=[partition(records=records)])]  # type: ignore[list-item]
    return request


def _array_paths(cls: type[Struct], version: int) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []
    for field in cls.fields:
        if not field.is_present(version):
            continue
        if field.is_array:
            paths.append((field.name,))
        if field.struct is not None:
            paths += [(field.name, *rest) for rest in _array_paths(field.struct, version)]
    return paths


def _requests_with_arrays() -> list[type[Message]]:
    requests = [api.request for api in API_BY_KEY.values()]
    return [cls for cls in requests if _array_paths(cls, cls.versions[1])]


@pytest.mark.parametrize("cls", _requests_with_arrays(), ids=lambda cls: cls.__name__)
def test_the_densest_request_takes_a_small_multiple_of_its_size(cls: type[Message]) -> None:
    version = cls.versions[1]
    deepest = max(_array_paths(cls, version), key=len)
    raw = memoryview(encode(_crowded(cls, version, deepest), version))
    peak = _peak_bytes_of_reading(cls, version, raw)
    assert peak <= BUDGET_FLOOR_BYTES + MEMORY_MULTIPLE_MAX * len(raw)


def _crowded(cls: type[Struct], version: int, path: tuple[str, ...]) -> Any:
    """Return a value with enough small items in the array at the path to fill the frame."""
    field = next(f for f in cls.fields if f.name == path[0])
    if len(path) == 1:
        item = _small(field, version)
        return cls(**{field.name: [item] * (FRAME_BYTES // _wire_bytes(item, field))})
    assert field.struct is not None
    inner = _crowded(field.struct, version, path[1:])
    return cls(**{field.name: [inner] if field.is_array else inner})


def _small(field: Field, version: int) -> Any:
    if field.struct is not None:
        present = [f for f in field.struct.fields if f.is_present(version)]
        texts = {f.name: "ab" for f in present if f.kind == "string" and not f.is_array}
        return field.struct(**texts)
    return {"string": "ab", "uuid": bytes(16), "bytes": b"ab"}.get(field.kind, 1000 % 128)


def _wire_bytes(item: Any, field: Field) -> int:
    return 3 if isinstance(item, str) else 16 if isinstance(item, bytes) else 4


def _peak_bytes_of_reading(cls: type[Message], version: int, raw: memoryview) -> int:
    _try_reading(cls, version, raw[:1])  # compiles the reader
    tracemalloc.start()
    try:
        _try_reading(cls, version, raw)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _try_reading(cls: type[Message], version: int, raw: memoryview) -> Message | None:
    try:
        return decode(cls, version, raw)
    except ProtocolError:
        return None
