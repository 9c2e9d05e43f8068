"""Every message that kafka-python knows: it reads Ottla's bytes, and writes the same bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.apis import API_BY_KEY
from ottla.wire.codec import decode_request, decode_response, encode_request, encode_response
from ottla.wire.frames import LENGTH_BYTES
from ottla.wire.headers import (
    RequestHeader,
    ResponseHeader,
    read_request_header,
    read_request_header_of_version,
    read_response_header,
    write_request_header,
    write_response_header,
)
from ottla.wire.schema import Message
from ottla.wire.writing import encode
from tests.conformance import kafka_python_oracle
from tests.conformance.kafka_python_oracle import KafkaPython
from tests.conformance.oracles import (
    FEW,
    MANY,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    both_readings,
    cases_known_to,
    full_value,
    messages_known_to,
    nullable_fields,
    plain_request_header,
    value_of_defaults,
    values_for,
    versions_known_to,
)
from tests.message_strategies import name_of

KAFKA_PYTHON = KafkaPython()
CASES = pytest.mark.parametrize(("cls", "version"), cases_known_to(KAFKA_PYTHON), ids=name_of)
MESSAGES = pytest.mark.parametrize("cls", messages_known_to(KAFKA_PYTHON), ids=name_of)
API_KEYS = pytest.mark.parametrize(
    "api_key", [k for k, api in API_BY_KEY.items() if versions_known_to(KAFKA_PYTHON, api.request)]
)
CORRELATION_ID = 7


@MESSAGES
def test_kafka_python_finds_every_field_in_its_place(cls: type[Message]) -> None:
    for version in versions_known_to(KAFKA_PYTHON, cls):
        value = full_value(KAFKA_PYTHON, cls, version)
        theirs, ours = both_readings(KAFKA_PYTHON, value, version)
        assert (version, theirs) == (version, ours)


@MESSAGES
def test_kafka_python_has_the_same_defaults_for_what_is_not_sent(cls: type[Message]) -> None:
    for version in versions_known_to(KAFKA_PYTHON, cls):
        theirs, ours = both_readings(KAFKA_PYTHON, value_of_defaults(cls, version), version)
        assert (version, theirs) == (version, ours)


@MESSAGES
def test_kafka_python_takes_null_where_ottla_does(cls: type[Message]) -> None:
    for version in versions_known_to(KAFKA_PYTHON, cls):
        if KAFKA_PYTHON.says_what_is_nullable(cls, version):
            theirs, ours = KAFKA_PYTHON.nullable_fields(cls, version), nullable_fields(cls, version)
            assert (version, theirs) == (version, ours)


@CASES
@FEW
@given(data=st.data())
def test_kafka_python_reads_and_writes_as_ottla_does(
    cls: type[Message], version: int, data: st.DataObject
) -> None:
    value = data.draw(values_for(KAFKA_PYTHON, cls, version))
    theirs, ours = both_readings(KAFKA_PYTHON, value, version)
    assert theirs == ours


@pytest.mark.parametrize("version", [1, 2])
@MANY
@given(header=REQUEST_HEADERS)
def test_kafka_python_reads_and_writes_request_headers_as_ottla_does(
    version: int, header: RequestHeader
) -> None:
    raw = write_request_header(header, version)
    theirs = kafka_python_oracle.read_request_header(version, raw)
    assert theirs == (plain_request_header(header), raw)
    assert read_request_header_of_version(version, memoryview(raw)) == (header, len(raw))


@pytest.mark.parametrize("version", [0, 1])
@MANY
@given(header=RESPONSE_HEADERS)
def test_kafka_python_reads_and_writes_response_headers_as_ottla_does(
    version: int, header: ResponseHeader
) -> None:
    raw = write_response_header(header, version)
    theirs = kafka_python_oracle.read_response_header(version, raw)
    assert theirs == ({"correlation_id": header.correlation_id}, raw)
    assert read_response_header(version, memoryview(raw)) == (header, len(raw))


@API_KEYS
def test_kafka_python_frames_requests_as_ottla_does(api_key: int) -> None:
    cls = API_BY_KEY[api_key].request
    for version in versions_known_to(KAFKA_PYTHON, cls):
        request = full_value(KAFKA_PYTHON, cls, version)
        header = RequestHeader(api_key, version, CORRELATION_ID, "a client")
        frame = KAFKA_PYTHON.frame(cls, version, encode(request, version), header)
        assert frame == b"".join(encode_request(header, request))
        content = memoryview(frame)[LENGTH_BYTES:]
        read_header, position = read_request_header(content)
        assert (read_header, decode_request(read_header, content, position)) == (header, request)


@API_KEYS
def test_kafka_python_frames_responses_as_ottla_does(api_key: int) -> None:
    cls = API_BY_KEY[api_key].response
    for version in versions_known_to(KAFKA_PYTHON, cls):
        response = full_value(KAFKA_PYTHON, cls, version)
        header = RequestHeader(api_key, version, CORRELATION_ID)
        frame = KAFKA_PYTHON.frame(cls, version, encode(response, version), header)
        assert frame == b"".join(encode_response(api_key, version, CORRELATION_ID, response))
        read = decode_response(api_key, version, memoryview(frame)[LENGTH_BYTES:])
        assert read == (ResponseHeader(CORRELATION_ID), response)
