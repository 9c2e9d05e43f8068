"""Only the controller opens envelopes; any content gets a response."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.handlers.delete_topics import VERSIONS, DeleteTopicsHandler
from ottla.broker.handlers.envelope import EnvelopeHandler
from ottla.broker.requests.forwarded_identity import address_bytes, principal_bytes
from ottla.broker.requests.request_context import RequestContext
from ottla.broker.requests.routes import Route
from ottla.model.error_code import ErrorCode
from ottla.simulation.world.disk import SimulatedDisk
from ottla.wire.api_key import ApiKey
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.frames import LENGTH_BYTES
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.schema import Message
from tests.examples import examples
from tests.metadata_building import open_store

LISTENER = "BROKERS"
REQUEST = DeleteTopicsRequest(topic_names=["t"])


def in_envelope(key: int, version: int, request: Message) -> EnvelopeRequest:
    header = RequestHeader(key, version, 7, "someone")
    data = b"".join(encode_request(header, request))[LENGTH_BYTES:]
    return EnvelopeRequest(
        request_data=data,
        request_principal=principal_bytes("User:someone"),
        client_host_address=address_bytes("10.0.0.1"),
    )


def handle(
    envelope: EnvelopeRequest,
    *,
    listener: str = LISTENER,
    is_controller: bool = True,
    is_over: bool = False,
) -> tuple[EnvelopeResponse, list[RequestContext]]:
    """Open an envelope; return the response, and the context of the inner request."""
    seen: list[RequestContext] = []
    store = open_store(SimulatedDisk())
    deleting = DeleteTopicsHandler(store)

    async def delete(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        seen.append(context)
        return await deleting.handle(context, request)

    async def refuse(_: RequestContext, __: Message) -> Message:  # noqa: RUF029 - as handlers are
        raise AssertionError("not for the controller")

    routes = {
        ApiKey.DELETE_TOPICS: Route(VERSIONS, delete, is_for_controller=True),
        ApiKey.LIST_GROUPS: Route(range(6), refuse),
    }
    handler = EnvelopeHandler(lambda: routes, lambda: is_controller, LISTENER)
    context = RequestContext("User:broker", "broker-1", "10.0.0.9", listener, 0, 5)

    async def story() -> EnvelopeResponse:
        if is_over:
            await store.close()
        return await handler.handle(context, envelope)

    return asyncio.run(story()), seen


def test_a_forwarded_request_is_handled_on_behalf_of_its_sender() -> None:
    answer, (seen,) = handle(in_envelope(ApiKey.DELETE_TOPICS, 4, REQUEST))
    assert answer.error_code == ErrorCode.NONE
    assert answer.response_data is not None
    header, inside = decode_response(ApiKey.DELETE_TOPICS, 4, memoryview(answer.response_data))
    assert header.correlation_id == 7
    assert isinstance(inside, DeleteTopicsResponse)
    assert inside.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (seen.principal, seen.client_address) == ("User:someone", "10.0.0.1")
    assert (seen.client_id, seen.api_version, seen.received_ms) == ("someone", 4, 5)


@pytest.mark.parametrize(
    ("envelope", "code"),
    [
        (in_envelope(ApiKey.LIST_GROUPS, 3, ListGroupsRequest()), ErrorCode.INVALID_REQUEST),
        (in_envelope(ApiKey.ENVELOPE, 0, EnvelopeRequest()), ErrorCode.INVALID_REQUEST),
        (EnvelopeRequest(), ErrorCode.INVALID_REQUEST),
        (
            EnvelopeRequest(request_data=b"\x00\x14\x00\x63\x00\x00\x00\x01\xff\xff\x00"),
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_nothing_but_requests_for_the_controller_may_be_inside(
    envelope: EnvelopeRequest, code: ErrorCode
) -> None:
    answer, seen = handle(envelope)
    assert (answer.error_code, answer.response_data, seen) == (code, None, [])


@pytest.mark.parametrize(
    "principal", [b"", b"\x00\x01\x05User\x02m\x00\x00", b"\x00\x00\x05User", b"User:someone"]
)
def test_a_damaged_principal_is_not_believed(principal: bytes) -> None:
    envelope = in_envelope(ApiKey.DELETE_TOPICS, 4, REQUEST)
    envelope.request_principal = principal
    answer, _ = handle(envelope)
    assert answer.error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


def test_an_address_that_is_none_is_refused() -> None:
    envelope = in_envelope(ApiKey.DELETE_TOPICS, 4, REQUEST)
    envelope.client_host_address = b"10.0.0.1"
    answer, _ = handle(envelope)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_clients_cannot_speak_in_the_name_of_others() -> None:
    envelope = in_envelope(ApiKey.DELETE_TOPICS, 4, REQUEST)
    answer, seen = handle(envelope, listener="CLIENTS")
    assert (answer.error_code, seen) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


def test_another_than_the_controller_does_not_open_it() -> None:
    answer, seen = handle(in_envelope(ApiKey.DELETE_TOPICS, 4, REQUEST), is_controller=False)
    assert (answer.error_code, seen) == (ErrorCode.NOT_CONTROLLER, [])


def test_an_answer_that_was_overtaken_by_the_end_of_a_term_is_not_passed_on() -> None:
    answer, seen = handle(in_envelope(ApiKey.DELETE_TOPICS, 4, REQUEST), is_over=True)
    assert (answer.error_code, answer.response_data) == (ErrorCode.NOT_CONTROLLER, None)
    assert len(seen) == 1


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=40), st.binary(max_size=10), st.booleans())
def test_any_bytes_are_answered(data: bytes, name: bytes, has_header: bool) -> None:
    prefix = b"\x00\x14\x00\x06\x00\x00\x00\x01\xff\xff\x00" if has_header else b""
    envelope = EnvelopeRequest(
        request_data=prefix + data, request_principal=name, client_host_address=name
    )
    answer, _ = handle(envelope)
    assert bool(answer.error_code) == (answer.response_data is None)
