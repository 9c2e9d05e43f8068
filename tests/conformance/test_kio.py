"""Every message that kio knows: it reads Ottla's bytes, and writes the same bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode

from ottla.model.error_code import ErrorCode
from ottla.wire.apis import API_BY_KEY
from ottla.wire.headers import (
    RequestHeader,
    ResponseHeader,
    read_request_header_of_version,
    read_response_header,
    request_header_version,
    response_header_version,
    write_request_header,
    write_response_header,
)
from ottla.wire.schema import Message
from tests.conformance.kio_oracle import Kio, kio_class, read_header
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

KIO = Kio()
MESSAGES = pytest.mark.parametrize("cls", messages_known_to(KIO), ids=name_of)
CASES = pytest.mark.parametrize(("cls", "version"), cases_known_to(KIO), ids=name_of)


@MESSAGES
def test_kio_finds_every_field_in_its_place(cls: type[Message]) -> None:
    for version in versions_known_to(KIO, cls):
        theirs, ours = both_readings(KIO, full_value(KIO, cls, version), version)
        assert (version, theirs) == (version, ours)


@MESSAGES
def test_kio_has_the_same_defaults_for_what_is_not_sent(cls: type[Message]) -> None:
    for version in versions_known_to(KIO, cls):
        theirs, ours = both_readings(KIO, value_of_defaults(cls, version), version)
        assert (version, theirs) == (version, ours)


@MESSAGES
def test_kio_takes_null_where_ottla_does(cls: type[Message]) -> None:
    for version in versions_known_to(KIO, cls):
        theirs, ours = KIO.nullable_fields(cls, version), nullable_fields(cls, version)
        assert (version, theirs) == (version, ours)


@CASES
@FEW
@given(data=st.data())
def test_kio_reads_and_writes_as_ottla_does(
    cls: type[Message], version: int, data: st.DataObject
) -> None:
    theirs, ours = both_readings(KIO, data.draw(values_for(KIO, cls, version)), version)
    assert theirs == ours


@pytest.mark.parametrize("version", [1, 2])
@MANY
@given(header=REQUEST_HEADERS)
def test_kio_reads_and_writes_request_headers_as_ottla_does(
    version: int, header: RequestHeader
) -> None:
    raw = write_request_header(header, version)
    assert read_header("request_header", version, raw) == (plain_request_header(header), raw)
    assert read_request_header_of_version(version, memoryview(raw)) == (header, len(raw))


@pytest.mark.parametrize("version", [0, 1])
@MANY
@given(header=RESPONSE_HEADERS)
def test_kio_reads_and_writes_response_headers_as_ottla_does(
    version: int, header: ResponseHeader
) -> None:
    raw = write_response_header(header, version)
    said = {"correlation_id": header.correlation_id}
    assert read_header("response_header", version, raw) == (said, raw)
    assert read_response_header(version, memoryview(raw)) == (header, len(raw))


@pytest.mark.parametrize("api_key", API_BY_KEY)
def test_kio_puts_the_same_headers_before_requests_and_responses(api_key: int) -> None:
    request, response = API_BY_KEY[api_key]
    for version in versions_known_to(KIO, request):
        theirs = (_header_version(request, version), _header_version(response, version))
        assert theirs == (
            request_header_version(api_key, version),
            response_header_version(api_key, version),
        )


def _header_version(cls: type[Message], version: int) -> int:
    return int(kio_class(cls, version).__header_schema__.__version__)


def test_kio_has_the_same_error_codes() -> None:
    theirs = {code.name.upper(): int(code) for code in KioErrorCode}
    assert theirs == {code.name: int(code) for code in ErrorCode}
