"""The memory of groups: per group, and in total."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.machines.groups.group_memory import MEMBER_BYTES, MEMBER_ID_BYTES, SMALL_BYTES
from ottla.machines.groups.request_types import NotYet
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.sync_group import SyncGroupResponse
from tests.unit.machines.groups.host import GROUP, Host

KIB = 1 << 10
MIB = 1 << 20


def refusal(answer: JoinGroupResponse | NotYet) -> int:
    assert isinstance(answer, JoinGroupResponse)
    return answer.error_code


def test_a_group_that_would_take_too_much_has_no_room_for_another_member() -> None:
    host = Host(group_bytes_max=100 * KIB)
    first = host.join_anew(metadata=bytes(60 * KIB))
    assert refusal(host.join(metadata=bytes(60 * KIB))) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert isinstance(host.join(metadata=bytes(10 * KIB), version=3), NotYet)
    assert refusal(host.join(first.member_id, metadata=bytes(99 * KIB))) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED
    )
    assert isinstance(host.join(first.member_id, metadata=bytes(50 * KIB)), NotYet)


def test_each_protocol_counts() -> None:
    host = Host(group_bytes_max=100 * KIB)
    names = [f"protocol-{number}" for number in range(1000)]
    assert refusal(host.join(protocols=names, metadata=b"")) == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_static_member_that_comes_back_does_not_count_twice() -> None:
    host = Host(group_bytes_max=100 * KIB)
    host.join(instance="one", metadata=bytes(60 * KIB))
    assert isinstance(host.join(instance="one", metadata=bytes(61 * KIB)), NotYet)
    assert len(host.group.members) == 1


def test_all_groups_together_take_no_more_than_they_may() -> None:
    host = Host(memory_bytes=MIB)
    refused = [
        refusal(answer)
        for number in range(100)
        if not isinstance(
            answer := host.join(group=f"g{number}", metadata=bytes(64 * KIB), version=3), NotYet
        )
    ]
    assert len(refused) == 100 - 11
    assert set(refused) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert host.memory.used_bytes < 0.75 * MIB
    assert len(host.machine.group_ids()) == 11


def test_members_with_large_metadata_leave_room_for_others() -> None:
    host = Host(memory_bytes=MIB)
    for number in range(100):
        host.join(group=f"g{number}", metadata=bytes(SMALL_BYTES + 1), version=3)
    host.join_anew(group="honest")
    assert isinstance(host.join(group="honest", version=3), NotYet)


def test_ids_that_were_given_out_count_until_they_expire() -> None:
    host = Host(memory_bytes=100 * KIB)
    codes = [refusal(host.join(group="g")) for _ in range(200)]
    assert codes[0] == ErrorCode.MEMBER_ID_REQUIRED
    assert codes[-1] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert 90 * KIB < host.memory.used_bytes <= 100 * KIB
    host.pass_ms(60_000)
    assert host.memory.used_bytes == 0


def test_the_memory_of_members_is_released_when_they_leave() -> None:
    host = Host(memory_bytes=MIB)
    wait = host.join_anew(metadata=bytes(KIB))
    assert host.memory.used_bytes > MEMBER_BYTES + KIB
    host.pass_ms(3_000)
    answer = host.joined(wait)
    synced = host.sync(answer.member_id, 1, {answer.member_id: bytes(5 * KIB)})
    assert isinstance(synced, SyncGroupResponse)
    used_bytes = host.memory.used_bytes
    assert MEMBER_BYTES + 6 * KIB < used_bytes < MEMBER_BYTES + 7 * KIB
    host.reload()
    assert abs(host.memory.used_bytes - used_bytes) < MEMBER_ID_BYTES
    host.pass_ms(60_000)
    assert not host.group.members
    assert host.memory.used_bytes == len(GROUP) + len("consumer")


def test_assignments_are_held_to_the_limit() -> None:
    host = Host(group_bytes_max=100 * KIB)
    wait = host.join_anew()
    host.pass_ms(3_000)
    member_id = host.joined(wait).member_id
    strangers = {f"stranger-{number}": bytes(10 * KIB) for number in range(20)}
    refused = host.sync(member_id, 1, {member_id: bytes(60 * KIB)})
    assert isinstance(refused, SyncGroupResponse)
    assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    before = host.memory.used_bytes
    assert host.synced(host.sync(member_id, 1, strangers)).error_code == 0
    assert host.memory.used_bytes == before


def test_a_proposal_missing_in_the_log_counts_until_the_next_proposal() -> None:
    host = Host()
    wait = host.join_anew()
    host.pass_ms(3_000)
    member_id = host.joined(wait).member_id
    before = host.memory.used_bytes
    for size_bytes in (70 * KIB, 50 * KIB):
        host.group.propose({member_id: bytes(size_bytes)}, host.wall_ms)
        assert host.memory.used_bytes == before + size_bytes


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["join", "static", "leave", "sync", "wait", "reload"]),
            st.integers(0, 3),
            st.integers(0, 5_000),
        ),
        max_size=30,
    )
)
def test_the_counted_memory_is_the_used_memory(steps: list[tuple[str, int, int]]) -> None:
    host = Host()
    for step, number, size_bytes in steps:
        members = [*(group.members if (group := host.machine.group(GROUP)) else ())]
        member_id = members[number % len(members)] if members else ""
        if step == "join":
            host.join(member_id if number % 2 else "", metadata=bytes(size_bytes), version=3)
        elif step == "static":
            host.join(instance=f"i{number}", metadata=bytes(size_bytes))
        elif step == "leave":
            host.leave(member_id)
        elif step == "sync" and member_id:
            generation = host.group.generation
            host.sync(member_id, generation, {member_id: bytes(size_bytes)})
        elif step == "wait":
            host.pass_ms(size_bytes * 10)
        elif step == "reload":
            host.reload()
        counted = 0
        if (group := host.machine.group(GROUP)) is not None:
            proposed = group.proposed.members if group.proposed else ()
            counted = (
                len(GROUP)
                + len(group.protocol_type or "")
                + MEMBER_ID_BYTES * len(group.attendance.pending)
                + sum(member.used_bytes() for member in group.members.values())
                + sum(len(member.assignment) for member in proposed)
            )
        assert host.memory.used_bytes == counted
