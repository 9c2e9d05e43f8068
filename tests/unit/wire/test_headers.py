"""Headers: the header version of each message, and the handling of hostile headers."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.api_key import ApiKey
from ottla.wire.headers import (
    HEADER_TAGS_MAX,
    RequestHeader,
    ResponseHeader,
    read_request_header,
    read_request_header_of_version,
    read_response_header,
    request_header_version,
    response_header_version,
    write_request_header,
    write_response_header,
)
from ottla.wire.protocol_error import ProtocolError

TAGS = st.none() | st.dictionaries(
    st.integers(0, 1000), st.binary(max_size=4), min_size=1, max_size=3
)


def test_flexible_messages_have_flexible_headers() -> None:
    assert request_header_version(ApiKey.PRODUCE, 8) == 1
    assert request_header_version(ApiKey.PRODUCE, 9) == 2
    assert response_header_version(ApiKey.PRODUCE, 8) == 0
    assert response_header_version(ApiKey.PRODUCE, 9) == 1


def test_the_answer_to_api_versions_has_the_plainest_header_in_every_version() -> None:
    assert request_header_version(ApiKey.API_VERSIONS, 4) == 2
    assert [response_header_version(ApiKey.API_VERSIONS, v) for v in range(5)] == [0] * 5


def test_the_clients_name_keeps_its_two_byte_length_in_flexible_headers() -> None:
    header = RequestHeader(ApiKey.FETCH, 12, 7, "me")
    assert write_request_header(header, 2) == b"\0\x01\0\x0c\0\0\0\x07" + b"\0\x02me" + b"\0"


@given(
    st.sampled_from([0, 1, 2]),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text(max_size=5),
    TAGS,
)
def test_a_request_header_is_read_back(
    version: int, correlation_id: int, client_id: str | None, tags: dict[int, bytes] | None
) -> None:
    header = RequestHeader(
        0, 3, correlation_id, client_id if version >= 1 else None, tags if version >= 2 else None
    )
    raw = write_request_header(header, version)
    assert read_request_header_of_version(version, memoryview(raw)) == (header, len(raw))


@given(st.sampled_from([0, 1]), st.integers(-(2**31), 2**31 - 1), TAGS)
def test_a_response_header_is_read_back(
    version: int, correlation_id: int, tags: dict[int, bytes] | None
) -> None:
    header = ResponseHeader(correlation_id, tags if version >= 1 else None)
    raw = write_response_header(header, version)
    assert read_response_header(version, memoryview(raw)) == (header, len(raw))


def test_an_unknown_version_of_a_known_api_still_gives_a_header_to_answer_with() -> None:
    raw = write_request_header(RequestHeader(ApiKey.API_VERSIONS, 99, 5, "new"), 2)
    header, _ = read_request_header(memoryview(raw))
    assert (header.api_version, header.correlation_id) == (99, 5)


def test_an_unknown_api_is_refused_by_its_number() -> None:
    with pytest.raises(ProtocolError, match="unknown API 4, version 1"):
        read_request_header(memoryview(b"\0\x04\0\x01\0\0\0\0"))


def test_a_flood_of_tags_is_refused_by_its_count() -> None:
    flood = write_request_header(RequestHeader(0, 9, 1), 2)[:-1] + b"\x80\x80\x04"
    with pytest.raises(ProtocolError, match=f"65536 tagged fields, the limit is {HEADER_TAGS_MAX}"):
        read_request_header(memoryview(flood))


@given(st.binary(max_size=24))
def test_any_bytes_are_a_header_or_a_protocol_error(raw: bytes) -> None:
    for version in (0, 1, 2):
        try:
            header, position = read_request_header_of_version(version, memoryview(raw))
        except ProtocolError:
            continue
        assert position <= len(raw)
        assert isinstance(header, RequestHeader)
    with suppress(ProtocolError):
        read_request_header(memoryview(raw))
    with suppress(ProtocolError):
        read_response_header(1, memoryview(raw))
