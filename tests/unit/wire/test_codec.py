"""Whole frames, as a broker and a client exchange them."""

import pytest

from ottla.model.error_code import ErrorCode
from ottla.wire import writing
from ottla.wire.api_key import ApiKey
from ottla.wire.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from ottla.wire.frames import LENGTH_BYTES, frame_bytes_at
from ottla.wire.headers import RequestHeader, read_request_header
from ottla.wire.messages.api_versions import ApiVersionsResponse
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.writing import COPIED_BYTES_MAX


class SliceOfAFile:
    """Stands for records that the kernel will send: a writer may read only the length."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes


def only_frame(pieces: list[bytes]) -> memoryview:
    data = bytearray(b"".join(pieces))
    assert frame_bytes_at(data, 0, 1 << 20) == len(data) - LENGTH_BYTES
    return memoryview(data)[LENGTH_BYTES:]


@pytest.mark.parametrize("version", range(5))
def test_a_request_reaches_the_broker(version: int) -> None:
    sent = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    header = RequestHeader(ApiKey.HEARTBEAT, version, 11, "test")
    frame = only_frame(encode_request(header, sent))
    read_header, position = read_request_header(frame)
    assert read_header == header
    assert decode_request(read_header, frame, position) == sent


@pytest.mark.parametrize("version", range(5))
def test_an_answer_reaches_the_client(version: int) -> None:
    sent = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    frame = only_frame(encode_response(ApiKey.HEARTBEAT, version, 11, sent))
    header, response = decode_response(ApiKey.HEARTBEAT, version, frame)
    assert (header.correlation_id, response) == (11, sent)


def test_the_answer_to_api_versions_needs_no_flexible_header() -> None:
    frame = only_frame(encode_response(ApiKey.API_VERSIONS, 3, 8, ApiVersionsResponse()))
    assert bytes(frame[:6]) == b"\0\0\0\x08" + b"\0\0"
    assert decode_response(ApiKey.API_VERSIONS, 3, frame)[1] == ApiVersionsResponse()


def test_an_unknown_version_is_unsupported() -> None:
    with pytest.raises(ProtocolError, match="HeartbeatRequest v9, known are 0 to 4") as refusal:
        decode_request(RequestHeader(ApiKey.HEARTBEAT, 9, 1), memoryview(b""), 0)
    assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_large_records_leave_as_they_are_between_joined_bytes() -> None:
    on_disk = SliceOfAFile(1 << 20)
    pieces = encode_response(ApiKey.FETCH, 12, 1, _fetched(b"small", on_disk, b"tail"))
    assert [type(piece) for piece in pieces] == [bytes, SliceOfAFile, bytes]
    assert pieces[1] is on_disk
    assert b"small" in pieces[0]
    assert int.from_bytes(pieces[0][:4], "big") == sum(map(len, pieces)) - 4


def test_large_records_in_memory_are_not_copied() -> None:
    records = memoryview(bytes(COPIED_BYTES_MAX + 1))
    pieces = encode_response(ApiKey.FETCH, 4, 1, _fetched(records))
    assert any(piece is records for piece in pieces)


@pytest.mark.parametrize("records", [b"", b"small", bytes(COPIED_BYTES_MAX)], ids=len)
def test_both_writers_copy_small_records_into_one_piece(
    records: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = _fetched(records, bytearray(records), memoryview(records))
    pieces = encode_response(ApiKey.FETCH, 12, 1, value)
    assert decode_response(ApiKey.FETCH, 12, memoryview(pieces[0])[4:])[1] == value
    monkeypatch.setattr(writing, "_compiled", None)
    assert encode_response(ApiKey.FETCH, 12, 1, value) == pieces


def _fetched(*records: object) -> FetchResponse:
    partitions = [PartitionData(partition_index=i, records=r) for i, r in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def test_bytes_behind_a_request_are_left_alone() -> None:
    sent = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    header = RequestHeader(ApiKey.HEARTBEAT, 4, 11, "test")
    frame = memoryview(bytes(only_frame(encode_request(header, sent))) + b"\0\0\0")
    read_header, position = read_request_header(frame)
    assert decode_request(read_header, frame, position) == sent
