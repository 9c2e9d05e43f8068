"""Offset commits in transactions."""

from random import Random

import pytest

from ottla.broker.coordinators.compacted_view import CompactedView
from ottla.machines.groups.group_memory import GroupMemory
from ottla.machines.groups.group_records import (
    CommittedOffset,
    GroupRecord,
    offset_record,
    offset_tombstone,
)
from ottla.machines.groups.machine import GroupMachine
from ottla.machines.groups.settings import GroupSettings
from ottla.machines.moment import Moment
from ottla.model.error_code import ErrorCode
from ottla.wire.coordinator_records.codec import CONSUMER_OFFSETS, RecordCodec
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.control import ControlType, end_txn_marker
from tests.unit.machines.groups.host import GROUP, Host

NOW = Moment(1_000, 1_000)
TOPIC = "events"
CODEC = RecordCodec(CONSUMER_OFFSETS)


def pending(
    machine: GroupMachine, offset: int, *, producer: int = 5, partition: int = 0, **named: object
) -> ErrorCode:
    """Commit an offset in a producer's transaction, as the broker does."""
    position = TxnOffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=None
    )
    request = TxnOffsetCommitRequest(
        group_id=GROUP,
        producer_id=producer,
        topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[position])],
        **named,
    )
    decision = machine.decide_transactional_commit(request, {TOPIC: bytes(16)}, NOW)
    for key, value, _ in decision.records:
        machine.replay(key, value, producer)
    return ErrorCode(decision.response.topics[0].partitions[0].error_code)


def plain(machine: GroupMachine, offset: int, partition: int = 0) -> None:
    key, value, _ = offset_record(
        GROUP, TOPIC, partition, CommittedOffset(offset, -1, "", NOW.wall_ms)
    )
    machine.replay(key, value)


def committed(machine: GroupMachine, partition: int = 0) -> int | None:
    found = machine.committed(GROUP, TOPIC, partition)
    return None if found is None else found.offset


def fetched(machine: GroupMachine) -> ErrorCode:
    wanted = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    request = OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted])
    answer = machine.decide_fetch(request, is_stable_only=True).response
    return ErrorCode(answer.topics[0].partitions[0].error_code)


@pytest.fixture
def machine() -> GroupMachine:
    return GroupMachine(GroupSettings(), GroupMemory(128 << 20))


def test_pending_offsets_count_when_the_transaction_commits(machine: GroupMachine) -> None:
    plain(machine, 1)
    assert pending(machine, 2) == ErrorCode.NONE
    assert (committed(machine), fetched(machine)) == (1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    machine.end_transaction(5, is_commit=True)
    assert (committed(machine), fetched(machine)) == (2, ErrorCode.NONE)


def test_pending_offsets_are_dropped_when_the_transaction_aborts(machine: GroupMachine) -> None:
    pending(machine, 2)
    assert machine.group_ids() == [GROUP]
    machine.end_transaction(5, is_commit=False)
    assert (committed(machine), fetched(machine)) == (None, ErrorCode.NONE)
    assert machine.group_ids() == []


def test_the_offset_written_later_counts_in_any_order_of_decisions(machine: GroupMachine) -> None:
    pending(machine, 2, producer=5)
    pending(machine, 3, producer=6)
    machine.end_transaction(6, is_commit=True)
    machine.end_transaction(5, is_commit=True)
    assert committed(machine) == 3
    pending(machine, 4, producer=5)
    plain(machine, 7)
    machine.end_transaction(5, is_commit=True)
    assert committed(machine) == 7


def test_a_deleted_offset_is_not_brought_back(machine: GroupMachine) -> None:
    pending(machine, 2)
    topic = OffsetDeleteRequestTopic(
        name=TOPIC, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
    )
    decision = machine.decide_offset_delete(OffsetDeleteRequest(group_id=GROUP, topics=[topic]))
    for key, value, _ in decision.records:
        machine.replay(key, value)
    machine.end_transaction(5, is_commit=True)
    assert committed(machine) is None


def test_a_group_and_a_topic_are_deleted_with_their_pending_offsets(machine: GroupMachine) -> None:
    pending(machine, 2)
    (tombstone, _) = machine.decide_delete(GROUP).records
    assert tombstone == offset_tombstone(GROUP, TOPIC, 0)
    forgotten = machine.decide_forget(TOPIC, None)
    assert forgotten.records == (offset_tombstone(GROUP, TOPIC, 0),)


def test_pending_offsets_take_memory_until_the_transaction_ends() -> None:
    memory = GroupMemory(100 << 10)
    machine = GroupMachine(GroupSettings(), memory)
    machine.start(NOW)
    for producer in range(200):
        code = pending(machine, 2, producer=producer)
    assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert 90 << 10 < memory.used_bytes <= 100 << 10
    for producer in range(200):
        machine.end_transaction(producer, is_commit=producer % 2 == 0)
    assert committed(machine) == 2
    assert memory.used_bytes == len(GROUP)
    machine.stop()
    assert memory.used_bytes == 0


def test_a_member_is_held_to_its_generation() -> None:
    host = Host()
    (member_id,) = host.stable_group(members=1)
    group = host.machine.group(GROUP)
    assert group is not None
    here = {"member_id": member_id, "generation_id": group.generation}
    assert pending(host.machine, 1, **here) == ErrorCode.NONE
    late = {**here, "generation_id": group.generation - 1}
    assert pending(host.machine, 1, **late) == ErrorCode.ILLEGAL_GENERATION
    stranger = {**here, "member_id": "somebody"}
    assert pending(host.machine, 1, **stranger) == ErrorCode.UNKNOWN_MEMBER_ID
    assert pending(host.machine, 1) == ErrorCode.NONE  # a client without a member id


def test_a_generation_of_a_group_that_is_not_there_is_refused(machine: GroupMachine) -> None:
    assert pending(machine, 1, generation_id=3, member_id="x") == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("seed", range(60))
def test_the_loaded_state_equals_the_former_state(seed: int) -> None:
    """Any order of offsets, transactions and markers: loading the log restores the live state."""
    dice = Random(seed)
    live, values = GroupMachine(GroupSettings(), GroupMemory(128 << 20)), CompactedView()
    for number in range(60):
        producer, partition = dice.choice([5, 6, 7]), dice.randrange(2)
        offset = CommittedOffset(number, -1, "", NOW.wall_ms)
        match dice.choice(["plain", "pending", "pending", "end", "delete"]):
            case "plain":
                record, producer = offset_record(GROUP, TOPIC, partition, offset), -1
            case "pending":
                record = offset_record(GROUP, TOPIC, partition, offset)
            case "delete" if dice.random() < 0.3:
                record, producer = offset_tombstone(GROUP, TOPIC, partition), -1
            case _:
                is_commit = dice.random() < 0.5
                live.end_transaction(producer, is_commit=is_commit)
                kind = ControlType.COMMIT if is_commit else ControlType.ABORT
                values.add(RecordBatch(memoryview(end_txn_marker(kind, 0, producer, 0, 0))))
                continue
        live.replay(record.key, record.value, producer)
        values.add(batch_of(record, producer))
    loaded = GroupMachine(GroupSettings(), GroupMemory(128 << 20))
    for key, value, producer in values.in_order():
        loaded.replay(*CODEC.decode(key, value), producer)
    for _ in range(2):
        assert sorted(loaded.offsets_of(GROUP)) == sorted(live.offsets_of(GROUP))
        assert loaded.group_ids() == live.group_ids()
        assert fetched(loaded) == fetched(live)
        for producer in (5, 6, 7):
            live.end_transaction(producer, is_commit=True)
            loaded.end_transaction(producer, is_commit=True)


def batch_of(record: GroupRecord, producer: int) -> RecordBatch:
    key, value, version = record
    builder = BatchBuilder(
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        is_transactional=producer >= 0,
    )
    encoded = None if value is None else CODEC.encode_value(value, version)
    builder.append(0, CODEC.encode_key(key), encoded)
    return RecordBatch(memoryview(builder.build()))
