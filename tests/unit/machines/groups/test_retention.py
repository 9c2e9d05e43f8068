"""Expiry of offsets and groups."""

import pytest

from ottla.machines.groups import retention
from ottla.machines.groups.classic_group import GroupState
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.leave_group import MemberIdentity
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.unit.machines.groups.host import DAY_MS, GROUP, Host

CHECK_MS = 600_000


def commit_many(host: Host, count: int) -> None:
    partitions = [
        OffsetCommitRequestPartition(partition_index=n, committed_offset=n) for n in range(count)
    ]
    topic = OffsetCommitRequestTopic(name="events", partitions=partitions)
    request = OffsetCommitRequest(group_id=GROUP, topics=[topic])
    host.run(host.machine.decide_commit(request, 9, host.now))


def stay_alive(host: Host, member_id: str, duration_ms: int) -> None:
    """Pass time while the group's only member, with a long session, stays alive."""
    for _ in range(duration_ms // CHECK_MS):
        assert host.beat(member_id, 1) == ErrorCode.NONE
        host.pass_ms(CHECK_MS)


def test_offsets_without_members_expire_a_week_after_the_commit() -> None:
    host = Host()
    host.commit(1)
    host.pass_ms(DAY_MS)
    host.commit(2, topic="other")
    host.pass_ms(6 * DAY_MS - CHECK_MS)
    assert host.fetch() == 1
    host.pass_ms(2 * CHECK_MS)
    assert (host.fetch(), host.fetch(topic="other")) == (-1, 2)
    host.pass_ms(DAY_MS)
    assert host.machine.group(GROUP) is None
    assert host.loaded().group(GROUP) is None


def test_offsets_of_a_group_expire_a_week_after_the_last_member_went() -> None:
    host = Host()
    ids = host.stable_group(members=1, session_timeout_ms=2 * CHECK_MS)
    host.commit(1, ids[0], 1)
    stay_alive(host, ids[0], 8 * DAY_MS)
    assert host.fetch() == 1
    host.leave(*ids)
    host.pass_ms(7 * DAY_MS - CHECK_MS)
    assert host.fetch() == 1
    host.pass_ms(2 * CHECK_MS)
    assert host.machine.group(GROUP) is None
    assert host.loaded(compacted=True).group(GROUP) is None


def test_offsets_that_an_operator_sets_in_an_empty_group_last_a_week_too() -> None:
    host = Host()
    host.leave(*host.stable_group())
    host.commit(1)
    host.pass_ms(6 * DAY_MS)
    host.commit(2)
    host.pass_ms(6 * DAY_MS)
    assert host.fetch() == 2


def test_offsets_of_topics_that_a_group_reads_no_more_expire() -> None:
    host = Host()
    ids = host.stable_group(members=1, session_timeout_ms=2 * CHECK_MS)
    host.commit(1, ids[0], 1)
    host.commit(2, ids[0], 1, topic="formerly")
    stay_alive(host, ids[0], 7 * DAY_MS + CHECK_MS)
    assert (host.fetch(), host.fetch(topic="formerly")) == (1, -1)
    assert host.group.state is GroupState.STABLE


def test_offsets_of_groups_with_an_unknown_protocol_type_stay() -> None:
    host = Host()
    how = {"protocol_type": "connect", "session_timeout_ms": 2 * CHECK_MS}
    ids = host.stable_group(members=1, **how)
    host.commit(1, ids[0], 1)
    stay_alive(host, ids[0], 8 * DAY_MS)
    assert host.fetch() == 1


def test_offsets_with_a_time_of_their_own_expire_then() -> None:
    host = Host()
    host.commit(1, version=4, retention_time_ms=CHECK_MS // 2)
    host.commit(2, topic="other", version=4, retention_time_ms=30 * DAY_MS)
    host.pass_ms(CHECK_MS)
    assert (host.fetch(), host.fetch(topic="other")) == (-1, 2)
    host.pass_ms(29 * DAY_MS)
    assert host.fetch(topic="other") == 2


def test_a_group_that_never_committed_goes_at_the_next_look() -> None:
    host = Host()
    host.leave(*host.stable_group())
    assert host.group.state is GroupState.EMPTY
    host.pass_ms(CHECK_MS)
    assert host.machine.group(GROUP) is None
    assert host.loaded().group(GROUP) is None


def test_a_group_with_a_pending_member_stays() -> None:
    host = Host()
    host.leave(*host.stable_group())
    host.pass_ms(CHECK_MS - host.monotonic_ms + 5_000 - 1)
    host.join()
    host.pass_ms(1)
    assert host.group.attendance.pending


def test_many_offsets_expire_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "TOMBSTONES_MAX", 10)
    host = Host(offsets_retention_ms=1_000)
    commit_many(host, 25)
    host.commit(1, group="another")
    host.pass_ms(CHECK_MS - 1)
    sizes = []
    for _ in range(4):
        host.wall_ms += 1
        host.monotonic_ms += 1
        before = len(host.log)
        host.run(host.machine.expire(host.now))
        sizes.append(len(host.log) - before)
    assert sizes == [11, 10, 5, 0]
    assert host.machine.group(GROUP) is None
    assert host.machine.next_deadline_ms() == host.monotonic_ms - 1 + CHECK_MS


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    host = Host()
    ids = host.stable_group()
    host.commit(1, ids[0], 1)
    assert delete_group(host) == ErrorCode.NON_EMPTY_GROUP
    host.leave(*ids)
    assert delete_group(host) == ErrorCode.NONE
    assert host.machine.group(GROUP) is None
    assert delete_group(host) == ErrorCode.GROUP_ID_NOT_FOUND
    for compacted in (False, True):
        twin = host.loaded(compacted=compacted)
        assert twin.group(GROUP) is None
        assert twin.committed(GROUP, "events", 0) is None


def test_members_that_went_leave_no_deadline_behind() -> None:
    host = Host()
    host.join(instance="static")
    host.join(instance="static")
    host.leave(MemberIdentity(member_id="", group_instance_id="static"))
    assert delete_group(host) == ErrorCode.NONE
    host.pass_ms(DAY_MS)
    assert host.machine.group(GROUP) is None


def test_a_deleted_group_leaves_no_deadline_of_pending_members() -> None:
    host = Host()
    host.join()
    assert delete_group(host) == ErrorCode.NONE
    host.pass_ms(DAY_MS)
    assert host.machine.group(GROUP) is None


def delete_group(host: Host) -> int:
    return host.run(host.machine.decide_delete(GROUP)).error_code


def test_offsets_of_a_deleted_topic_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "TOMBSTONES_MAX", 2)
    host = Host()
    for group in ("a", "b", "c"):
        host.commit(1, group=group)
        host.commit(2, group=group, topic="other")
    assert host.machine.topics() == ["events", "other"]
    counts = []
    while (decision := host.machine.decide_forget("events", None)).response:
        host.run(decision)
        counts.append(len(decision.records))
    assert counts == [2, 1]
    assert host.machine.topics() == ["other"]
    for group in ("a", "b", "c"):
        assert (host.fetch(group=group), host.fetch(group=group, topic="other")) == (-1, 2)


def test_offsets_of_the_next_topic_of_that_name_are_kept() -> None:
    host = Host()
    host.commit(1, group="old", topic_id=b"\x01" * 16)
    host.commit(2, group="new", topic_id=b"\x02" * 16)
    host.run(host.machine.decide_forget("events", b"\x02" * 16))
    assert (host.fetch(group="old"), host.fetch(group="new")) == (-1, 2)
