"""The broker's part around the machine: append, replay, notify, watch the clock."""

from collections.abc import Iterable
from typing import Any, TypeVar

from ottla.machines.decision import Decision
from ottla.machines.groups.classic_group import ClassicGroup
from ottla.machines.groups.group_memory import GroupMemory
from ottla.machines.groups.group_records import GroupRecord
from ottla.machines.groups.machine import GroupMachine
from ottla.machines.groups.request_types import Caller, NotYet
from ottla.machines.groups.settings import GroupSettings
from ottla.machines.moment import Moment
from ottla.model.identifiers import ZERO_UUID
from ottla.wire.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.coordinator_records.codec import CONSUMER_OFFSETS, RecordCodec
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ottla.wire.writing import encode

T = TypeVar("T")
CODEC = RecordCodec(CONSUMER_OFFSETS)
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DAY_MS = 24 * 60 * 60_000
GROUP = "readers"


def subscription(*topics: str) -> bytes:
    """The metadata of a consumer that reads these topics."""
    return b"\x00\x00" + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


class Host:
    """One machine over one log. Every record is encoded and decoded before its replay."""

    def __init__(self, *, memory_bytes: int = 128 << 20, **settings: int) -> None:
        self.memory = GroupMemory(memory_bytes)
        self.settings = GroupSettings(**settings)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.wall_ms = 1_700_000_000_000
        self.monotonic_ms = 5_000
        self.uuids = 0
        self.notified: set[str] = set()
        self.machine = GroupMachine(self.settings, self.memory)
        self.machine.start(self.now)

    @property
    def now(self) -> Moment:
        return Moment(self.wall_ms, self.monotonic_ms)

    def run(self, decision: Decision[GroupRecord, T]) -> T:
        for record in decision.records:
            key = CODEC.encode_key(record.key)
            value = None
            if record.value is not None:
                value = CODEC.encode_value(record.value, record.version)
            self.log.append((key, value))
            self.machine.replay(*CODEC.decode(key, value))
        self.notified.update(self.machine.take_notified())
        return decision.response

    def pass_ms(self, duration_ms: int) -> None:
        """Advance the time, deadline by deadline."""
        end_ms = self.monotonic_ms + duration_ms
        while True:
            deadline_ms = self.machine.next_deadline_ms()
            assert deadline_ms is not None
            if deadline_ms > end_ms:
                break
            self._go_to(max(deadline_ms, self.monotonic_ms))
            self.run(self.machine.expire(self.now))
        self._go_to(end_ms)

    def _go_to(self, monotonic_ms: int) -> None:
        self.wall_ms += monotonic_ms - self.monotonic_ms
        self.monotonic_ms = monotonic_ms

    def reload(self, *, compacted: bool = False) -> None:
        """Fail over to a new machine, with only the log."""
        self.machine.stop()
        assert self.memory.used_bytes == 0
        self.machine = self.loaded(compacted=compacted)
        self.machine.start(self.now)
        self.notified.update(self.machine.take_notified())

    def loaded(self, *, compacted: bool = False) -> GroupMachine:
        records = self.log
        if compacted:
            last = {key: index for index, (key, _) in enumerate(records)}
            records = [records[index] for index in sorted(last.values())]
        machine = GroupMachine(self.settings, self.memory)
        for key, value in records:
            machine.replay(*CODEC.decode(key, value))
        return machine

    @property
    def group(self) -> ClassicGroup:
        found = self.machine.group(GROUP)
        assert found is not None
        return found

    def fresh_uuid(self) -> bytes:
        self.uuids += 1
        return self.uuids.to_bytes(16, "big")

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocols: Iterable[str] = ("range",),
        metadata: bytes = subscription("events"),
        version: int = 9,
        client: str = "client",
        **fields: Any,
    ) -> JoinGroupResponse | NotYet:
        usual: dict[str, Any] = {
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
        }
        request = JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            protocols=[JoinGroupRequestProtocol(name=p, metadata=metadata) for p in protocols],
            **usual | fields,
        )
        caller = Caller(version, client, "/10.0.0.1")
        return self.run(self.machine.decide_join(request, caller, self.fresh_uuid(), self.now))

    def join_anew(self, **how: Any) -> NotYet:
        """Join as a dynamic member does: join, get a member id, and join again with it."""
        first = self.join(**how)
        assert isinstance(first, JoinGroupResponse)
        second = self.join(first.member_id, **how)
        assert isinstance(second, NotYet)
        return second

    def joined(self, wait: JoinGroupResponse | NotYet) -> JoinGroupResponse:
        assert isinstance(wait, NotYet)
        answer = self.run(self.machine.ask_join_again(wait))
        assert isinstance(answer, JoinGroupResponse), answer
        return answer

    def sync(
        self,
        member_id: str,
        generation: int,
        work: dict[str, bytes] | None = None,
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> SyncGroupResponse | NotYet:
        request = SyncGroupRequest(
            group_id=group,
            member_id=member_id,
            generation_id=generation,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=m, assignment=a)
                for m, a in (work or {}).items()
            ],
        )
        return self.run(self.machine.decide_sync(request, self.now))

    def synced(self, answer: SyncGroupResponse | NotYet) -> SyncGroupResponse:
        if isinstance(answer, NotYet):
            answer = self.run(self.machine.ask_sync_again(answer))
        assert isinstance(answer, SyncGroupResponse), answer
        return answer

    def beat(self, member_id: str, generation: int, instance: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            generation_id=generation,
            group_instance_id=instance,
        )
        return self.run(self.machine.decide_heartbeat(request, self.now)).error_code

    def leave(self, *members: str | MemberIdentity) -> LeaveGroupResponse:
        request = LeaveGroupRequest(
            group_id=GROUP,
            members=[MemberIdentity(member_id=m) if isinstance(m, str) else m for m in members],
        )
        return self.run(self.machine.decide_leave(request, 5, self.now))

    def commit(
        self,
        offset: int,
        member_id: str = "",
        generation: int = -1,
        *,
        group: str = GROUP,
        topic: str = "events",
        version: int = 9,
        metadata: str | None = "",
        topic_id: bytes = ZERO_UUID,
        **fields: Any,
    ) -> int:
        """Commit for partition 0 and return the error code."""
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            topics=[
                OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[partition])
            ],
            **fields,
        )
        response = self.run(self.machine.decide_commit(request, version, self.now))
        return response.topics[0].partitions[0].error_code

    def fetch(self, *, group: str = GROUP, topic: str = "events") -> int:
        """Return the committed offset of partition 0."""
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        request = OffsetFetchRequestGroup(group_id=group, topics=topics)
        response = self.run(self.machine.decide_fetch(request))
        return response.topics[0].partitions[0].committed_offset

    def stable_group(self, *, members: int = 2, **how: Any) -> list[str]:
        """Join dynamic members until the group is stable; the first member leads."""
        waits = [self.join_anew(**how) for _ in range(members)]
        self.pass_ms(3 * self.settings.group_initial_rebalance_delay_ms)
        answers = [self.joined(wait) for wait in waits]
        ids = [answer.member_id for answer in answers]
        generation = answers[0].generation_id
        self.sync(ids[0], generation, {m: m.encode() for m in ids})
        for member_id in ids[1:]:
            assert self.synced(self.sync(member_id, generation)).assignment == member_id.encode()
        return ids
