"""Clients that fill a broker's memory with groups: it stays bounded, and other groups work."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer

from ottla.model.error_code import ErrorCode
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.clients.raw_requests import RawConnection
from tests.clients.test_hostile_process import Process

MEGABYTE: Final = 1 << 20
REQUESTS: Final = 500
REQUESTS_PER_CONNECTION: Final = 10
SESSION_MS: Final = 300_000
GROWTH_BYTES_MAX: Final = 250 << 20
"""128 MiB for the groups, and the requests that are being read; without limits it was 1 GB."""
FOLLOWERS: Final = 60
ASSIGNMENT_BYTES: Final = 2 * MEGABYTE
SECONDS_MAX: Final = 240


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    running = Process(tmp_path)
    assert running.serves()
    with RawConnection(servers_of(running)) as client:
        found = ErrorCode.COORDINATOR_NOT_AVAILABLE
        while found is not ErrorCode.NONE:
            request = FindCoordinatorRequest(coordinator_keys=["honest"])
            (answer,) = client.ask(ApiKey.FIND_COORDINATOR, 4, request).coordinators
            found = ErrorCode(answer.error_code)
    try:
        yield running
    finally:
        running.stop()


def servers_of(process: Process) -> str:
    host, port = process.address
    return f"{host}:{port}"


def join(group: str, member_id: str = "", *, size_bytes: int = MEGABYTE) -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(size_bytes))
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="attack",
        protocols=[protocol],
    )


def check_honest_group(process: Process) -> None:
    """Read the records of a topic with a new member of a group, and commit."""
    servers = servers_of(process)
    assert process.serves()
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "honest",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["served"])
    try:
        deadline = time.monotonic() + SECONDS_MAX
        message = None
        while message is None or message.error():
            assert time.monotonic() < deadline, "the honest group reads nothing"
            message = consumer.poll(1)
        consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.parametrize("groups", [1, REQUESTS], ids=["one group", "many groups"])
def test_joins_with_large_metadata_leave_the_broker_small(process: Process, groups: int) -> None:
    servers = servers_of(process)
    before = process.memory_bytes()
    # A join that waits keeps the broker from reading the requests behind it.
    per_connection = 1 if groups == 1 else REQUESTS_PER_CONNECTION
    with ExitStack() as stack:
        for number in range(REQUESTS):
            if number % per_connection == 0:
                client = stack.enter_context(RawConnection(servers))
            request = join(f"attack-{number % groups}")
            if groups == 1:
                client.send(ApiKey.JOIN_GROUP, 3, request)  # waits for the other members
            else:
                client.ask(ApiKey.JOIN_GROUP, 3, request)
        check_honest_group(process)
        assert process.memory_bytes() - before < GROWTH_BYTES_MAX
    check_honest_group(process)


def test_joins_beyond_the_limits_are_refused(process: Process) -> None:
    servers = servers_of(process)
    with ExitStack() as stack:
        client = stack.enter_context(RawConnection(servers))
        large = client.ask(ApiKey.JOIN_GROUP, 5, join("large", size_bytes=9 * MEGABYTE))
        assert large.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        for number in range(100):
            client.ask(ApiKey.JOIN_GROUP, 3, join(f"full-{number}"))
        full = client.ask(ApiKey.JOIN_GROUP, 5, join("one too many"))
        assert full.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_followers_that_wait_keep_their_requests_but_no_copies_of_assignments(
    process: Process,
) -> None:
    servers = servers_of(process)
    with ExitStack() as stack:
        clients = [stack.enter_context(RawConnection(servers)) for _ in range(FOLLOWERS)]
        for client in clients:
            client.send(ApiKey.JOIN_GROUP, 3, join("followed", size_bytes=10))
        joined = [client.receive(ApiKey.JOIN_GROUP, 3) for client in clients]
        before = process.memory_bytes()
        for client, answer in zip(clients, joined, strict=True):
            if answer.member_id == answer.leader:
                continue
            work = SyncGroupRequestAssignment(member_id="x", assignment=bytes(ASSIGNMENT_BYTES))
            request = SyncGroupRequest(
                group_id="followed",
                generation_id=answer.generation_id,
                member_id=answer.member_id,
                assignments=[work],
            )
            client.send(ApiKey.SYNC_GROUP, 3, request)
        check_honest_group(process)
        # queued.max.request.bytes is the limit on the requests themselves.
        assert process.memory_bytes() - before < 1.5 * FOLLOWERS * ASSIGNMENT_BYTES
