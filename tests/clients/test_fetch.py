"""The contract of Fetch, tested over a socket."""

from collections import Counter
from collections.abc import Iterator
from itertools import count
from time import sleep
from typing import Any

import pytest

from ottla.model.error_code import ErrorCode
from ottla.replication.partition import Fetched, Partition
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from ottla.wire.records.batch import batches
from tests.clients.plain_socket import PlainSocket, batch, fetch_request, produce_request

LONG_MS = 60_000
"""Longer than the client's response timeout: a request that waits this long has failed."""
TOPIC_IDS = 13
NUMBERS = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"fetch.max.bytes": "100000"}) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[PlainSocket]:
    with PlainSocket(broker) as connection:
        yield connection


@pytest.fixture
def topic(client: PlainSocket) -> str:
    """A topic of its own for each test, with three batches of three records."""
    name = f"topic-{next(NUMBERS)}"
    client.create(name)
    for _ in range(3):
        client.produce(name, batch(b"a", b"b", b"c"))
    return name


def offsets(records: object) -> list[int]:
    return [found.base_offset for found in batches(memoryview(records))]  # type: ignore[arg-type]


BATCH_BYTES = len(batch(b"a", b"b", b"c"))


def test_a_fetch_from_inside_a_batch_returns_the_whole_batch(
    client: PlainSocket, topic: str
) -> None:
    assert offsets(client.fetch(topic, 4).records) == [3, 6]


def test_an_answer_says_where_the_partition_stands(client: PlainSocket, topic: str) -> None:
    answer = client.fetch(topic, 9)
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (9, 9, 0)
    assert answer.aborted_transactions is None
    assert len(answer.records) == 0
    assert client.fetch(topic, isolation_level=1).aborted_transactions == []


@pytest.mark.parametrize("offset", [10, -1, 1 << 62])
def test_an_offset_that_is_not_there_is_out_of_range(
    client: PlainSocket, topic: str, offset: int
) -> None:
    answer = client.fetch(topic, offset, max_wait_ms=LONG_MS, min_bytes=1)
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (
        -1,
        -1,
        -1,
    )


def test_the_first_batch_is_returned_whole_under_any_limit(client: PlainSocket, topic: str) -> None:
    for how in ({"partition_max_bytes": 1}, {"max_bytes": 1}, {"max_bytes": 0}):
        answer = client.fetch(topic, 1, **how)
        assert len(answer.records) == BATCH_BYTES


def test_limits_hold_for_each_partition_and_for_all(client: PlainSocket) -> None:
    client.create("limits", 3)
    for index in range(3):
        for _ in range(3):
            client.produce("limits", batch(b"a", b"b", b"c"), index=index)
    wanted = [FetchPartition(partition=i, partition_max_bytes=2 * BATCH_BYTES) for i in range(3)]
    topics = [FetchTopic(topic="limits", partitions=wanted)]
    request = FetchRequest(max_bytes=3 * BATCH_BYTES, topics=topics)
    (answered,) = client.ask(ApiKey.FETCH, 12, request).responses
    assert [len(p.records) // BATCH_BYTES for p in answered.partitions] == [2, 1, 0]


def test_the_broker_has_a_limit_of_its_own(client: PlainSocket) -> None:
    client.create("large")
    for _ in range(5):
        client.produce("large", batch(bytes(30_000)))
    answer = client.fetch("large", max_bytes=1 << 30, partition_max_bytes=1 << 30)
    assert offsets(answer.records) == [0, 1, 2], "the fourth would be cut off, and is left out"
    assert len(answer.records) == 3 * len(batch(bytes(30_000)))
    answer = client.fetch("large", min_bytes=1 << 30, max_bytes=1 << 30, max_wait_ms=LONG_MS)
    assert offsets(answer.records) == [0, 1, 2], "nobody waits for more than there can be"


def test_a_reader_in_an_old_segment_does_not_wait_for_more(client: PlainSocket) -> None:
    client.create("segments", segment_bytes="1048576")
    for _ in range(30):
        client.produce("segments", batch(bytes(50_000)))
    last_of_the_first = 1048576 // (50_000 + 70) - 1
    answer = client.fetch("segments", last_of_the_first, min_bytes=90_000, max_wait_ms=LONG_MS)
    assert offsets(answer.records) == [last_of_the_first]


@pytest.mark.parametrize(
    ("leader_epoch", "code"),
    [(0, ErrorCode.NONE), (-1, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_a_fetch_with_another_leader_epoch_gets_an_error(
    client: PlainSocket, topic: str, leader_epoch: int, code: ErrorCode
) -> None:
    assert client.fetch(topic, leader_epoch=leader_epoch).error_code == code


def test_a_log_that_went_another_way_is_told_where_it_left(client: PlainSocket, topic: str) -> None:
    answer = client.fetch(topic, 9, last_fetched_epoch=0)
    assert (answer.error_code, answer.diverging_epoch) == (0, None)
    answer = client.fetch(topic, 20, last_fetched_epoch=0, max_wait_ms=LONG_MS, min_bytes=1)
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 9)
    assert (answer.error_code, len(answer.records)) == (0, 0)
    answer = client.fetch(topic, 9, last_fetched_epoch=5, max_wait_ms=LONG_MS, min_bytes=1)
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_clients_cannot_fetch_as_followers(client: PlainSocket, topic: str) -> None:
    assert client.fetch(topic, replica_id=1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer = client.fetch(topic, replica_id=1, leader_epoch=0)
    assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    topic_id = client.create("followed")
    state = ReplicaState(replica_id=7, replica_epoch=1)
    answer = client.fetch("", version=16, topic_id=topic_id, replica_state=state)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == 1
    assert client.fetch(topic, replica_id=-2).error_code == 0, "a consumer that looks closely"


def test_an_unknown_topic_does_not_end_the_wait(client: PlainSocket, topic: str) -> None:
    answer = client.fetch("no such topic", max_wait_ms=LONG_MS, min_bytes=1)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = fetch_request(topic, 9, max_wait_ms=LONG_MS, min_bytes=1)
    request.topics += fetch_request("no such topic").topics
    client.send(ApiKey.FETCH, 12, request)
    client.send(ApiKey.PRODUCE, 9, produce_request(topic, batch(b"at last")))
    there, missing = client.receive(ApiKey.FETCH, 12).responses
    assert offsets(there.partitions[0].records) == [9]
    assert missing.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_waiting_fetch_reads_only_the_partitions_with_new_records(
    broker: Broker, client: PlainSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create("many", 50)
    looks: Counter[int] = Counter()
    read = Partition.read

    def counted_read(partition: Partition, *args: Any, **how: Any) -> Fetched:
        looks[partition.name.partition] += 1
        return read(partition, *args, **how)

    monkeypatch.setattr(Partition, "read", counted_read)
    wanted = [FetchPartition(partition=i, partition_max_bytes=1 << 20) for i in range(50)]
    request = FetchRequest(
        max_wait_ms=LONG_MS,
        min_bytes=10 * BATCH_BYTES,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic="many", partitions=wanted)],
    )
    with PlainSocket(broker) as waiting:
        waiting.send(ApiKey.FETCH, 12, request)
        while len(looks) < 50:
            sleep(0.01)
        for index in [7, 3, 7, 49, 0, 3, 7, 8, 9, 10]:
            client.produce("many", batch(b"a", b"b", b"c"), index=index)
        (answered,) = waiting.receive(ApiKey.FETCH, 12).responses
    found = {p.partition_index: offsets(p.records) for p in answered.partitions if p.records}
    assert found == {0: [0], 3: [0, 3], 7: [0, 3, 6], 8: [0], 9: [0], 10: [0], 49: [0]}
    assert looks[20] == 2, "once at the beginning and once for the answer"
    assert looks.total() <= 2 * 50 + 10


def test_a_topic_that_is_deleted_meanwhile_ends_the_wait(
    broker: Broker, client: PlainSocket
) -> None:
    client.create("short-lived")
    client.send(ApiKey.FETCH, 12, fetch_request("short-lived", max_wait_ms=LONG_MS, min_bytes=1))
    with PlainSocket(broker) as other:
        other.ask(ApiKey.DELETE_TOPICS, 6, _deletion("short-lived"))
    (answered,) = client.receive(ApiKey.FETCH, 12).responses
    assert answered.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _deletion(topic: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=LONG_MS)


def test_a_topic_id_finds_its_topic_and_an_unknown_one_does_not(client: PlainSocket) -> None:
    topic_id = client.create("by-id")
    client.produce("by-id", batch(b"x"))
    response = client.ask(ApiKey.FETCH, TOPIC_IDS, fetch_request("", topic_id=topic_id))
    (answered,) = response.responses
    assert answered.topic_id == topic_id
    assert offsets(answered.partitions[0].records) == [0]
    answer = client.fetch("", version=TOPIC_IDS, topic_id=b"nobody's id, 16b")
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_that_is_made_anew_is_another_one(client: PlainSocket) -> None:
    topic_id = client.create("anew")
    request = fetch_request("", topic_id=topic_id, session_epoch=0)
    session_id = client.ask(ApiKey.FETCH, TOPIC_IDS, request).session_id
    client.ask(ApiKey.DELETE_TOPICS, 6, _deletion("anew"))

    def codes(epoch: int) -> list[int]:
        request = FetchRequest(session_id=session_id, session_epoch=epoch)
        responses = client.ask(ApiKey.FETCH, TOPIC_IDS, request).responses
        return [partition.error_code for t in responses for partition in t.partitions]

    assert codes(1) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    client.create("anew")
    assert codes(2) == [ErrorCode.INCONSISTENT_TOPIC_ID]


def test_a_session_needs_to_say_only_what_is_new(client: PlainSocket) -> None:
    client.create("session", 3)
    wanted = [FetchPartition(partition=i, partition_max_bytes=1000) for i in range(3)]
    begun = FetchRequest(
        session_epoch=0, max_bytes=1000, topics=[FetchTopic(topic="session", partitions=wanted)]
    )
    response = client.ask(ApiKey.FETCH, 12, begun)
    session_id = response.session_id
    assert session_id > 0
    assert [p.partition_index for t in response.responses for p in t.partitions] == [0, 1, 2]

    def ask(epoch: int, **how: object) -> list[int]:
        request = FetchRequest(session_id=session_id, session_epoch=epoch, max_bytes=1000, **how)
        response = client.ask(ApiKey.FETCH, 12, request)
        assert (response.error_code, response.session_id) == (0, session_id)
        return [p.partition_index for t in response.responses for p in t.partitions]

    assert ask(1) == []
    client.produce("session", batch(b"x"), index=1)
    assert ask(2) == [1]
    assert ask(3) == [1], "the client has not gone on"
    further = FetchPartition(partition=1, fetch_offset=1, partition_max_bytes=1000)
    assert ask(4, topics=[FetchTopic(topic="session", partitions=[further])]) == []
    forgotten = [ForgottenTopic(topic="session", partitions=[2])]
    client.produce("session", batch(b"x"), index=2)
    assert ask(5, forgotten_topics_data=forgotten) == []


def test_a_session_wakes_up_for_a_partition_that_it_did_not_name_again(
    broker: Broker, client: PlainSocket
) -> None:
    client.create("asleep")
    session_id = client.ask(ApiKey.FETCH, 12, fetch_request("asleep", session_epoch=0)).session_id
    waiting = FetchRequest(
        session_id=session_id, session_epoch=1, max_wait_ms=LONG_MS, min_bytes=1, max_bytes=1000
    )
    client.send(ApiKey.FETCH, 12, waiting)
    with PlainSocket(broker) as other:
        other.produce("asleep", batch(b"good morning"))
    (answered,) = client.receive(ApiKey.FETCH, 12).responses
    assert offsets(answered.partitions[0].records) == [0]


@pytest.mark.parametrize(
    ("session_id", "epoch", "version", "code"),
    [
        (12345, 1, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 7, 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, 1, TOPIC_IDS, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_session_that_is_not_like_that_is_refused(
    client: PlainSocket,
    topic: str,
    session_id: int | None,
    epoch: int,
    version: int,
    code: ErrorCode,
) -> None:
    begun = client.ask(ApiKey.FETCH, 12, fetch_request(topic, session_epoch=0)).session_id
    request = FetchRequest(session_id=session_id or begun, session_epoch=epoch)
    response = client.ask(ApiKey.FETCH, version, request)
    assert (response.error_code, response.session_id, response.responses) == (code, 0, [])


def test_a_large_backlog_of_one_partition_does_not_starve_the_others(client: PlainSocket) -> None:
    client.create("fair", 2)
    for index in range(2):
        for _ in range(3):
            client.produce("fair", batch(b"a", b"b", b"c"), index=index)
    wanted = [FetchPartition(partition=i, partition_max_bytes=1000) for i in range(2)]
    begun = FetchRequest(
        session_epoch=0, max_bytes=1, topics=[FetchTopic(topic="fair", partitions=wanted)]
    )
    session_id = client.ask(ApiKey.FETCH, 12, begun).session_id
    served = []
    for epoch in range(1, 5):
        request = FetchRequest(session_id=session_id, session_epoch=epoch, max_bytes=1)
        response = client.ask(ApiKey.FETCH, 12, request)
        served += [
            p.partition_index for t in response.responses for p in t.partitions if len(p.records)
        ]
    assert served == [0, 1, 0, 1]
