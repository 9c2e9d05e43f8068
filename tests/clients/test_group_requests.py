"""Groups, asked by hand: codes, filters and versions that clients seldom show."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.coordinators import coordinator_log
from ottla.model.error_code import ErrorCode
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.sync_group import SyncGroupRequest
from tests.clients.plain_socket import SECONDS_MAX, PlainSocket

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "offsets.retention.check.interval.ms": "50",
}
STRANGER = b"\x07" * 16


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[PlainSocket]:
    with Broker(SETTINGS) as broker, PlainSocket(broker) as connection:
        find(connection)
        yield connection


def find(connection: PlainSocket) -> None:
    connection.ask(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key="any"))


def delete(connection: PlainSocket, name: str) -> None:
    connection.ask(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=[name]))


def commit(
    connection: PlainSocket,
    group: str,
    topic: str = "",
    *,
    topic_id: bytes = bytes(16),
    version: int = 9,
    retention_ms: int = -1,
) -> list[int]:
    """Commit offset 5 for partition 0 and for a missing partition; return the error codes."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=5) for index in (0, 99)
    ]
    request = OffsetCommitRequest(
        group_id=group,
        retention_time_ms=retention_ms,
        topics=[OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=partitions)],
    )
    answer = connection.ask(ApiKey.OFFSET_COMMIT, version, request)
    return [one.error_code for one in answer.topics[0].partitions]


def fetch(connection: PlainSocket, group: str, topic: str) -> int:
    """Return the committed offset of partition 0."""
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    answer = fetch_group(connection, 9, group, [wanted])
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


def fetch_group(
    connection: PlainSocket,
    version: int,
    group: str,
    topics: list[OffsetFetchRequestTopics] | None,
) -> Any:
    wanted = OffsetFetchRequestGroup(group_id=group, topics=topics)
    request = OffsetFetchRequest(groups=[wanted])
    return connection.ask(ApiKey.OFFSET_FETCH, version, request).groups[0]


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to that"


def join(group: str, *, member: str = "", instance: str | None = None) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x00")]
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=20_000,
        rebalance_timeout_ms=60_000,
        member_id=member,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=protocols,
    )


def test_offsets_are_committed_and_fetched_by_the_id_of_a_topic(connection: PlainSocket) -> None:
    topic_id = connection.create("by-id")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(connection, "g", topic_id=topic_id, version=10) == [0, unknown]
    codes = commit(connection, "g", topic_id=STRANGER, version=10)
    assert codes == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID]
    wanted = [
        OffsetFetchRequestTopics(topic_id=one, partition_indexes=[0])
        for one in (topic_id, STRANGER)
    ]
    group = fetch_group(connection, 10, "g", wanted)
    assert [(one.topic_id, one.partitions[0].committed_offset) for one in group.topics] == [
        (topic_id, 5),
        (STRANGER, -1),
    ]
    assert group.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert [one.topic_id for one in fetch_group(connection, 10, "g", None).topics] == [topic_id]
    assert fetch(connection, "g", "by-id") == 5


def test_offsets_of_a_deleted_topic_are_forgotten(connection: PlainSocket) -> None:
    connection.create("short-lived")
    connection.create("other")
    for group in ("a", "b", "c"):
        commit(connection, group, "short-lived")
    commit(connection, "a", "other")
    delete(connection, "short-lived")
    wait_until(lambda: len(listed(connection)) == 1)
    assert [one.name for one in fetch_group(connection, 9, "a", None).topics] == ["other"]
    connection.create("short-lived")
    assert fetch(connection, "a", "short-lived") == -1


def listed(connection: PlainSocket, states: list[str] | None = None, types: Any = ()) -> set[str]:
    request = ListGroupsRequest(states_filter=states or [], types_filter=list(types))
    return {group.group_id for group in connection.ask(ApiKey.LIST_GROUPS, 5, request).groups}


def test_groups_are_listed_by_state_and_type(connection: PlainSocket) -> None:
    connection.create("topic")
    commit(connection, "empty", "topic")
    with_member(connection, "stable")
    assert listed(connection) == {"empty", "stable"}
    assert listed(connection, ["stable"]) == {"stable"}
    assert listed(connection, ["Empty", "Dead"]) == {"empty"}
    assert listed(connection, ["no such state"]) == set()
    assert listed(connection, None, ["Classic"]) == {"empty", "stable"}
    assert listed(connection, None, ["consumer"]) == set()


def with_member(connection: PlainSocket, group: str, instance: str = "static") -> tuple[str, int]:
    """Join and sync as a static member; return its id and generation."""
    joined = connection.ask(ApiKey.JOIN_GROUP, 9, join(group, instance=instance))
    assert joined.error_code == 0
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance,
    )
    assert connection.ask(ApiKey.SYNC_GROUP, 5, request).error_code == 0
    return joined.member_id, joined.generation_id


def test_a_group_that_is_not_there_is_an_error_since_version_6(connection: PlainSocket) -> None:
    request = DescribeGroupsRequest(groups=["nobody"])
    (old,) = connection.ask(ApiKey.DESCRIBE_GROUPS, 5, request).groups
    assert (old.error_code, old.group_state) == (0, "Dead")
    (new,) = connection.ask(ApiKey.DESCRIBE_GROUPS, 6, request).groups
    assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert "nobody" in new.error_message


def test_authorized_operations_of_a_group_are_returned_on_request(connection: PlainSocket) -> None:
    with_member(connection, "g")
    request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    (group,) = connection.ask(ApiKey.DESCRIBE_GROUPS, 6, request).groups
    assert group.authorized_operations == 3400
    (plain,) = connection.ask(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["g"])).groups
    assert plain.authorized_operations == -(1 << 31)


def offset_delete(connection: PlainSocket, group: str, topic: str) -> tuple[int, list[int]]:
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 99)]
    request = OffsetDeleteRequest(
        group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    )
    answer = connection.ask(ApiKey.OFFSET_DELETE, 0, request)
    codes = [one.error_code for topic in answer.topics for one in topic.partitions]
    return answer.error_code, codes


def test_offsets_are_deleted_one_by_one(connection: PlainSocket) -> None:
    connection.create("topic")
    commit(connection, "g", "topic")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert offset_delete(connection, "g", "no-such-topic") == (0, [unknown, unknown])
    assert fetch(connection, "g", "topic") == 5
    assert offset_delete(connection, "g", "topic") == (0, [0, unknown])
    assert fetch(connection, "g", "topic") == -1
    assert offset_delete(connection, "g", "topic") == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert offset_delete(connection, "", "topic") == (ErrorCode.INVALID_GROUP_ID, [])


def test_a_group_without_a_name_has_no_members_but_may_commit(connection: PlainSocket) -> None:
    connection.create("topic")
    joined = connection.ask(ApiKey.JOIN_GROUP, 9, join(""))
    assert joined.error_code == ErrorCode.INVALID_GROUP_ID
    beat = connection.ask(ApiKey.HEARTBEAT, 4, HeartbeatRequest(group_id=""))
    assert beat.error_code == ErrorCode.INVALID_GROUP_ID
    assert commit(connection, "", "topic")[0] == 0
    assert fetch(connection, "", "topic") == 5
    deleted = connection.ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["", "x"]))
    assert [one.error_code for one in deleted.results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]


def test_only_groups_and_transactions_have_coordinators(connection: PlainSocket) -> None:
    for key_type, code in ((0, 0), (2, ErrorCode.INVALID_REQUEST), (9, ErrorCode.INVALID_REQUEST)):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a:b:0"])
        (found,) = connection.ask(ApiKey.FIND_COORDINATOR, 6, request).coordinators
        assert found.error_code == code


def test_old_clients_join_under_the_first_versions(connection: PlainSocket) -> None:
    for version in (0, 1):
        joined = connection.ask(ApiKey.JOIN_GROUP, version, join(f"old-{version}"))
        assert (joined.error_code, joined.leader) == (0, joined.member_id)
        assert [one.member_id for one in joined.members] == [joined.member_id]


def test_a_full_group_admits_no_member(tmp_path: Path) -> None:
    with (
        Broker({**SETTINGS, "group.max.size": "1"}) as broker,
        PlainSocket(broker) as connection,
    ):
        find(connection)
        with_member(connection, "small", "one")
        refused = connection.ask(ApiKey.JOIN_GROUP, 9, join("small", instance="two"))
        assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_offsets_expire_after_a_restart_without_a_request(tmp_path: Path) -> None:
    with (
        Broker(SETTINGS, data_dir=str(tmp_path)) as broker,
        PlainSocket(broker) as connection,
    ):
        find(connection)
        connection.create("topic")
        commit(connection, "kept", "topic")
        commit(connection, "brief", "topic", version=2, retention_ms=1)
        wait_until(lambda: listed(connection) == {"kept"})
        commit(connection, "brief", "topic", version=2, retention_ms=1)
    with (
        Broker(SETTINGS, data_dir=str(tmp_path)) as broker,
        PlainSocket(broker) as connection,
    ):
        wait_until(lambda: listed(connection) == {"kept"})
        assert fetch(connection, "kept", "topic") == 5


def test_the_topic_of_offsets_has_kafkas_settings_and_may_be_deleted(
    connection: PlainSocket,
) -> None:
    connection.create("topic")
    commit(connection, "g", "topic")
    answer = connection.ask(ApiKey.METADATA, 12, MetadataRequest(topics=None))
    (own,) = [one for one in answer.topics if one.name == "__consumer_offsets"]
    assert (own.is_internal, len(own.partitions)) == (True, 3)
    asked = DescribeConfigsResource(resource_type=2, resource_name="__consumer_offsets")
    request = DescribeConfigsRequest(resources=[asked])
    (described,) = connection.ask(ApiKey.DESCRIBE_CONFIGS, 4, request).results
    value_by_name = {one.name: one.value for one in described.configs}
    assert value_by_name["cleanup.policy"] == "compact"
    assert value_by_name["compression.type"] == "producer"
    assert value_by_name["segment.bytes"] == str(100 << 20)
    delete(connection, "__consumer_offsets")
    assert commit(connection, "g", "topic")[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    find(connection)
    assert fetch(connection, "g", "topic") == -1
    assert commit(connection, "g", "topic")[0] == 0


def test_requests_while_groups_are_loaded_get_a_retriable_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        Broker(SETTINGS, data_dir=str(tmp_path)) as broker,
        PlainSocket(broker) as connection,
    ):
        find(connection)
        connection.create("topic")
        for number in range(20):
            commit(connection, f"g{number}", "topic")
        member_id, generation = with_member(connection, "loading")
    may_load = threading.Event()
    collect = coordinator_log._collect
    monkeypatch.setattr(
        coordinator_log,
        "_collect",
        lambda part, values: may_load.wait(SECONDS_MAX) and collect(part, values),
    )
    with (
        Broker(SETTINGS, data_dir=str(tmp_path)) as broker,
        PlainSocket(broker) as connection,
    ):
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert connection.ask(ApiKey.JOIN_GROUP, 9, join("loading")).error_code == loading
        assert commit(connection, "loading", "topic")[0] == loading
        assert fetch_group(connection, 9, "loading", None).error_code == loading
        described = connection.ask(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["g1"]))
        assert described.groups[0].error_code == loading
        assert connection.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).error_code == loading
        beat = HeartbeatRequest(
            group_id="loading",
            generation_id=generation,
            member_id=member_id,
            group_instance_id="static",
        )
        assert connection.ask(ApiKey.HEARTBEAT, 4, beat).error_code == 0
        find(connection)
        may_load.set()
        wait_until(lambda: len(listed(connection)) == 21)
        assert connection.ask(ApiKey.HEARTBEAT, 4, beat).error_code == 0
        assert fetch(connection, "g7", "topic") == 5


def test_five_hundred_members_form_one_generation() -> None:
    count = 500
    settings = {**SETTINGS, "group.initial.rebalance.delay.ms": "1000"}
    with Broker(settings) as broker, ExitStack() as sockets:
        members = [sockets.enter_context(PlainSocket(broker)) for _ in range(count)]
        find(members[0])
        ids = [one.ask(ApiKey.JOIN_GROUP, 9, join("crowd")).member_id for one in members]
        assert len(set(ids)) == count
        for one, member_id in zip(members, ids, strict=True):
            one.send(ApiKey.JOIN_GROUP, 9, join("crowd", member=member_id))
        joined = [one.receive(ApiKey.JOIN_GROUP, 9) for one in members]
        assert {one.error_code for one in joined} == {0}
        (generation,) = {one.generation_id for one in joined}
        assert sorted(len(one.members) for one in joined) == [0] * (count - 1) + [count]
        for one, answer in zip(members, joined, strict=True):
            request = SyncGroupRequest(
                group_id="crowd", generation_id=generation, member_id=answer.member_id
            )
            one.send(ApiKey.SYNC_GROUP, 5, request)
        synced = [one.receive(ApiKey.SYNC_GROUP, 5) for one in members]
        assert {one.error_code for one in synced} == {0}
