"""One member of a classic consumer group: joins, is given partitions, stays alive, leaves.

join() → heartbeats in the background → `must_rejoin` is set → join() again → … → leave()
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ottla.clients.admin_groups import assigned_partitions, commit_offsets
from ottla.clients.admin_offsets import by_topic
from ottla.clients.cluster_view import ClusterView, pause
from ottla.clients.errors import NoAnswerError, UnreachableError, check
from ottla.clients.range_assignor import assign_ranges
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.offset_commit import OffsetCommitRequest
from ottla.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ottla.wire.reading import read
from ottla.wire.writing import encode

ASSIGNOR: Final = "range"
PROTOCOL_TYPE: Final = "consumer"
_MEMBERS_IN_A_LIST_SINCE: Final = 3
_VERSION: Final = 0
_VERSION_BYTES: Final = _VERSION.to_bytes(2, "big")
_LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
_JOIN_AGAIN: Final = (*_LOST, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How soon a group notices that a member is gone, and how long it waits for all to join."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 60_000


class GroupMember:
    """A member. Whoever holds it calls `join` first, and again whenever `must_rejoin` is set."""

    def __init__(
        self,
        view: ClusterView,
        group_id: str,
        topics: Sequence[str],
        settings: GroupSettings | None = None,
    ) -> None:
        self._view = view
        self._group_id = group_id
        self._topics = sorted(topics)
        self._settings = settings or GroupSettings()
        self._member_id = ""
        self._generation_id = -1
        self._beating: asyncio.Task[None] | None = None
        self.must_rejoin = asyncio.Event()
        self.must_rejoin.set()

    async def join(self) -> list[TopicPartition]:
        """Take part in the next generation, and return the partitions that are ours in it."""
        await self._stop_beating()
        while (partitions := await self._try_to_join()) is None:
            pass
        self.must_rejoin.clear()
        self._beating = asyncio.get_running_loop().create_task(self._beat())
        return partitions

    async def commit(self, offset_by_partition: Mapping[TopicPartition, int]) -> None:
        """Commit as this member; a generation that is over is an ApiError."""
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=self._generation_id,
            member_id=self._member_id,
        )
        await commit_offsets(self._view, request, offset_by_partition)

    async def leave(self) -> None:
        """Leave, so that the others need not wait for the session to end. Never fails."""
        await self._stop_beating()
        if not self._member_id:
            return
        with suppress(ApiError, UnreachableError, NoAnswerError):
            connection = await self._view.coordinator_connection(self._group_id)
            is_list = connection.version_for(LeaveGroupRequest) >= _MEMBERS_IN_A_LIST_SINCE
            request = LeaveGroupRequest(
                group_id=self._group_id,
                member_id="" if is_list else self._member_id,
                members=[MemberIdentity(member_id=self._member_id)] if is_list else [],
            )
            await self._view.ask_coordinator(self._group_id, request, LeaveGroupResponse)

    async def _try_to_join(self) -> list[TopicPartition] | None:
        """Return our partitions, or None if the group has moved on and is to be joined again."""
        try:
            joined = await self._view.retried(self._join)
            return await self._view.retried(lambda: self._sync(joined))
        except ApiError as error:
            if error.code not in _JOIN_AGAIN:
                raise
            if error.code in _LOST:
                self._member_id = ""
            return None

    async def _join(self) -> JoinGroupResponse:
        subscription = ConsumerProtocolSubscription(topics=self._topics)
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.rebalance_timeout_ms,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=ASSIGNOR, metadata=_VERSION_BYTES + encode(subscription, _VERSION)
                )
            ],
        )
        answer = await self._view.ask_coordinator(
            self._group_id,
            request,
            JoinGroupResponse,
            wait_ms=self._settings.rebalance_timeout_ms,
        )
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
        self._check(answer.error_code)
        self._member_id = answer.member_id
        self._generation_id = answer.generation_id
        return answer

    async def _sync(self, joined: JoinGroupResponse) -> list[TopicPartition]:
        is_leader = joined.leader == joined.member_id
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=await self._assignments(joined) if is_leader else [],
        )
        answer = await self._view.ask_coordinator(
            self._group_id,
            request,
            SyncGroupResponse,
            wait_ms=self._settings.rebalance_timeout_ms,
        )
        self._check(answer.error_code)
        return list(assigned_partitions(answer.assignment))

    async def _assignments(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Share out the partitions: the leader's duty."""
        topics_by_member = {}
        for member in joined.members:
            subscription, _ = read(
                ConsumerProtocolSubscription, _VERSION, memoryview(member.metadata), 2
            )
            topics_by_member[member.member_id] = subscription.topics
        wanted = sorted({topic for topics in topics_by_member.values() for topic in topics})
        found = await self._view.refresh(wanted)
        counts = {topic.name or "": len(topic.partitions) for topic in found}
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=_assignment(partitions))
            for member, partitions in assign_ranges(topics_by_member, counts).items()
        ]

    async def _beat(self) -> None:
        """Tell the coordinator that this member lives, until the group has to be joined again."""
        while True:
            await pause(self._settings.heartbeat_interval_ms)
            request = HeartbeatRequest(
                group_id=self._group_id,
                generation_id=self._generation_id,
                member_id=self._member_id,
            )
            try:
                answer = await self._view.ask_coordinator(
                    self._group_id, request, HeartbeatResponse
                )
                self._check(answer.error_code)
            except ApiError:
                self.must_rejoin.set()  # joining tells what is the matter
                return
            except (UnreachableError, NoAnswerError):
                self._view.forget_coordinator(self._group_id)

    async def _stop_beating(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
            self._beating = None

    def _check(self, number: int) -> None:
        try:
            check(number, f"group {self._group_id!r}")
        except ApiError as error:
            if error.code in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}:
                self._view.forget_coordinator(self._group_id)
            raise


def _assignment(partitions: Sequence[TopicPartition]) -> bytes:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedPartitions(topic=topic, partitions=[name.partition for name in names])
            for topic, names in by_topic(partitions).items()
        ]
    )
    return _VERSION_BYTES + encode(assignment, _VERSION)
