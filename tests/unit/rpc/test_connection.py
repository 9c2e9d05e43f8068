"""A connection over real sockets: to brokers, and to servers of other protocols."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import pytest

from ottla.clients.cluster.connections import connect
from ottla.clients.errors import NoResponseError, UnreachableError
from ottla.concurrency.sleep import pause
from ottla.model.address import Address
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.rpc.connection import Connection
from ottla.wire.api_key import ApiKey
from ottla.wire.codec import encode_response
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
TIMEOUT_MS = 10_000
Spoken = Mapping[ApiKey, tuple[int, int]]
SPOKEN: Spoken = {
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.LIST_GROUPS: (0, 3),
    ApiKey.METADATA: (99, 100),
}


async def request_of(reader: asyncio.StreamReader) -> tuple[int, int, int]:
    """Read a request; return its API key, version and correlation id."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    api_key, version, correlation_id = struct.unpack_from(">hhi", await reader.readexactly(size))
    return api_key, version, correlation_id


def versions_answer(
    correlation_id: int, version: int, error: int = 0, spoken: Spoken = SPOKEN
) -> bytes:
    rows = [
        ApiVersion(api_key=key, min_version=first, max_version=last)
        for key, (first, last) in spoken.items()
    ]
    answer = ApiVersionsResponse(error_code=error, api_keys=rows)
    return b"".join(encode_response(ApiKey.API_VERSIONS, version, correlation_id, answer))


async def be_asked_for_versions(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    _, version, correlation_id = await request_of(reader)
    writer.write(versions_answer(correlation_id, version))


def groups_answer(correlation_id: int, version: int, name: str) -> bytes:
    answer = ListGroupsResponse(groups=[ListedGroup(group_id=name)])
    return b"".join(encode_response(ApiKey.LIST_GROUPS, version, correlation_id, answer))


def run(serve: Serve, work: Callable[[Address], Awaitable[None]]) -> None:
    """Run `work` against a server with scripted behaviour."""
    asyncio.run(serving(serve, work))


async def serving(serve: Serve, work: Callable[[Address], Awaitable[None]]) -> None:
    tasks = []

    async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve_and_close, "127.0.0.1", 0)
    try:
        await work(Address("127.0.0.1", server.sockets[0].getsockname()[1]))
    finally:
        server.close()
        await asyncio.gather(*filter(None, tasks))


async def opened(address: Address, timeout_ms: int = TIMEOUT_MS) -> Connection:
    return await Connection.open(address, connect, client_id="test", timeout_ms=timeout_ms)


def why_unreachable(serve: Serve, timeout_ms: int = TIMEOUT_MS) -> str:
    said: list[str] = []

    async def work(address: Address) -> None:
        with pytest.raises(UnreachableError) as error:
            await opened(address, timeout_ms)
        said.append(str(error.value))

    run(serve, work)
    return said[0]


def test_responses_find_their_requests_in_any_order() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await be_asked_for_versions(reader, writer)
        requests = [await request_of(reader) for _ in range(3)]
        for _, version, correlation_id in reversed(requests):
            writer.write(groups_answer(correlation_id, version, f"group {correlation_id}"))
        await reader.read()

    async def work(address: Address) -> None:
        connection = await opened(address)
        assert connection.version_for(ListGroupsRequest) == 3
        asking = [
            connection.ask(ListGroupsRequest(), ListGroupsResponse, timeout_ms=TIMEOUT_MS)
            for _ in range(3)
        ]
        answers = await asyncio.gather(*asking)
        assert [answer.groups[0].group_id for answer in answers] == [
            "group 2",
            "group 3",
            "group 4",
        ]
        connection.close()

    run(serve, work)


def test_an_old_broker_is_asked_again_in_its_own_version() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, first, correlation_id = await request_of(reader)
        assert first == ApiVersionsRequest.versions[1]
        old = {ApiKey.API_VERSIONS: (0, 2)}
        unsupported = ErrorCode.UNSUPPORTED_VERSION
        writer.write(versions_answer(correlation_id, 0, unsupported, old))
        _, second, correlation_id = await request_of(reader)
        assert second == 2
        writer.write(versions_answer(correlation_id, 2, 0, old))
        await reader.read()

    async def work(address: Address) -> None:
        connection = await opened(address)
        assert connection.versions_by_api[ApiKey.API_VERSIONS] == (0, 2)
        connection.close()

    run(serve, work)


def test_what_is_not_spoken_on_both_sides_is_refused_before_it_is_sent() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await be_asked_for_versions(reader, writer)
        assert await reader.read() == b""

    async def work(address: Address) -> None:
        connection = await opened(address)
        with pytest.raises(ApiError, match="speaks Metadata 99 to 100"):
            await connection.ask(MetadataRequest(), MetadataResponse, timeout_ms=TIMEOUT_MS)
        with pytest.raises(ApiError, match="does not offer Heartbeat"):
            connection.version_for(HeartbeatRequest)
        connection.close()

    run(serve, work)


def test_nothing_that_listens_is_a_sentence() -> None:
    async def work() -> None:
        with pytest.raises(UnreachableError, match="nothing listens on 127"):
            await opened(Address("127.0.0.1", 1))

    asyncio.run(work())


def test_a_web_server_is_not_a_broker() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    assert "not a Kafka broker" in why_unreachable(serve)


def test_an_answer_that_cannot_be_read_is_not_a_brokers() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, _, correlation_id = await request_of(reader)
        writer.write(struct.pack(">iihi", 10, correlation_id, 0, 77777))

    assert "not a Kafka broker" in why_unreachable(serve)


def test_a_peer_that_hangs_up_is_a_sentence() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)

    said = why_unreachable(serve)
    assert "closed the connection" in said or "broke" in said


def test_a_peer_that_says_nothing_is_a_sentence() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    assert "did not answer within 0.05 s" in why_unreachable(serve, timeout_ms=50)


def ask_groups(connection: Connection, timeout_ms: int) -> Awaitable[ListGroupsResponse]:
    return connection.ask(ListGroupsRequest(), ListGroupsResponse, timeout_ms=timeout_ms)


def test_a_request_that_is_not_answered_fails_alone_if_others_are() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await be_asked_for_versions(reader, writer)
        await request_of(reader)
        with suppress(asyncio.IncompleteReadError):
            while True:
                _, version, correlation_id = await request_of(reader)
                writer.write(groups_answer(correlation_id, version, "heard"))

    async def work(address: Address) -> None:
        connection = await opened(address)
        unanswered = asyncio.ensure_future(ask_groups(connection, 300))
        await asyncio.sleep(0)  # it is sent first
        while not unanswered.done():
            assert (await ask_groups(connection, TIMEOUT_MS)).groups[0].group_id == "heard"
        with pytest.raises(NoResponseError, match="did not answer ListGroups within"):
            await unanswered
        assert (await ask_groups(connection, TIMEOUT_MS)).groups[0].group_id == "heard"
        connection.close()

    run(serve, work)


def test_a_broker_that_is_silent_for_too_long_is_taken_for_gone() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await be_asked_for_versions(reader, writer)
        await reader.read()

    async def work(address: Address) -> None:
        connection = await opened(address)
        waiting = asyncio.ensure_future(ask_groups(connection, TIMEOUT_MS))
        with pytest.raises(NoResponseError, match="did not answer ListGroups within"):
            await ask_groups(connection, 20)
        assert not connection.is_open
        with pytest.raises(UnreachableError, match="did not answer ListGroups"):
            await waiting

    run(serve, work)


def test_a_broker_that_wants_to_be_left_alone_is_and_the_order_is_kept() -> None:
    seen: list[tuple[float, str]] = []
    throttle_ms = 150

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await be_asked_for_versions(reader, writer)
        for number in range(4):
            _, version, correlation_id = await request_of(reader)
            answer = ListGroupsResponse(throttle_time_ms=0 if number else throttle_ms)
            pieces = encode_response(ApiKey.LIST_GROUPS, version, correlation_id, answer)
            seen.append((asyncio.get_running_loop().time(), str(correlation_id)))
            writer.write(b"".join(pieces))
        await reader.read()

    async def work(address: Address) -> None:
        connection = await opened(address)
        await ask_groups(connection, TIMEOUT_MS)
        assert connection.muted_ms > 0
        # The request timeout does not run while the request is held back here.
        await asyncio.gather(*(ask_groups(connection, TIMEOUT_MS) for _ in range(3)))
        assert connection.muted_ms == 0
        connection.close()

    run(serve, work)
    times = [time for time, _ in seen]
    assert times[1] - times[0] >= 0.9 * throttle_ms / 1000
    assert [number for _, number in seen] == ["2", "3", "4", "5"]


def test_a_connection_that_ends_fails_everything_that_waits() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await be_asked_for_versions(reader, writer)
        await request_of(reader)
        await request_of(reader)

    async def work(address: Address) -> None:
        connection = await opened(address)
        asking = [
            connection.ask(ListGroupsRequest(), ListGroupsResponse, timeout_ms=TIMEOUT_MS)
            for _ in range(2)
        ]
        failures = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(failure) for failure in failures] == [UnreachableError, UnreachableError]
        assert not connection.is_open
        with pytest.raises(UnreachableError):
            await connection.ask(ListGroupsRequest(), ListGroupsResponse, timeout_ms=TIMEOUT_MS)

    run(serve, work)


def test_who_waits_is_not_overtaken_by_who_would_not() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await be_asked_for_versions(reader, writer)
        throttle_ms = 100
        while True:
            _, version, number = await request_of(reader)
            answer = ListGroupsResponse(throttle_time_ms=throttle_ms)
            writer.write(b"".join(encode_response(ApiKey.LIST_GROUPS, version, number, answer)))
            throttle_ms = 0

    async def work(address: Address) -> None:
        connection = await opened(address)
        await connection.ask(ListGroupsRequest(), ListGroupsResponse, timeout_ms=TIMEOUT_MS)
        before = connection.counts.requests
        waiting = [
            asyncio.create_task(
                connection.ask(ListGroupsRequest(), ListGroupsResponse, timeout_ms=TIMEOUT_MS)
            )
            for _ in range(3)
        ]
        await asyncio.sleep(0)
        while not connection.ask_now(ListGroupsRequest(), lambda _answer, _error: None):
            await pause(0)
        sent = connection.counts.requests
        await asyncio.gather(*waiting)
        connection.close()
        assert sent == before + len(waiting) + 1

    async def serve_quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await serve(reader, writer)

    run(serve_quietly, work)


def many_records() -> ProduceRequest:
    """Return a request larger than the kernel's socket buffers."""
    row = PartitionProduceData(index=0, records=bytes(32 << 20))
    return ProduceRequest(acks=0, topic_data=[TopicProduceData(name="t", partition_data=[row])])


def run_telling(
    work: Callable[[Connection, asyncio.Event], Awaitable[None]], *, is_read: bool = True
) -> None:
    """Run `work` with a connection to a broker that reads, or closes, when the test says so."""

    async def main() -> None:
        is_told = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            _, version, number = await request_of(reader)
            spoken = {ApiKey.PRODUCE: (3, 9)}
            writer.write(versions_answer(number, version, spoken=spoken))
            await is_told.wait()
            if is_read:
                with suppress(asyncio.IncompleteReadError, ConnectionError):
                    await request_of(reader)

        async def connect_and_work(address: Address) -> None:
            connection = await opened(address)
            try:
                await work(connection, is_told)
            finally:
                is_told.set()
                connection.close()

        await serving(serve, connect_and_work)

    asyncio.run(main())


def test_a_request_without_answer_is_told_when_all_of_it_has_left() -> None:
    async def work(connection: Connection, is_told: asyncio.Event) -> None:
        telling = asyncio.create_task(connection.tell(many_records(), timeout_ms=TIMEOUT_MS))
        await asyncio.wait([telling], timeout=0.05)
        assert not telling.done()
        is_told.set()
        await telling
        assert connection.stream is not None
        assert not connection.stream.unsent

    run_telling(work)


def test_a_request_without_answer_fails_if_the_connection_ends_before_it_has_left() -> None:
    async def work(connection: Connection, is_told: asyncio.Event) -> None:
        telling = asyncio.create_task(connection.tell(many_records(), timeout_ms=TIMEOUT_MS))
        is_told.set()
        with pytest.raises(UnreachableError):
            await telling

    run_telling(work, is_read=False)


def test_a_broker_that_does_not_take_a_request_is_taken_for_gone() -> None:
    async def work(connection: Connection, _is_told: asyncio.Event) -> None:
        with pytest.raises(NoResponseError, match="did not take"):
            await connection.tell(many_records(), timeout_ms=20)
        assert not connection.is_open

    run_telling(work)
