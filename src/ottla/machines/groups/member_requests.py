"""SyncGroup, Heartbeat and LeaveGroup: the requests of members."""

from collections.abc import Mapping
from typing import Final

from ottla.machines.decision import Decision
from ottla.machines.groups.classic_group import ClassicGroup, GroupState
from ottla.machines.groups.group_records import GroupRecord
from ottla.machines.groups.group_store import GroupStore
from ottla.machines.groups.rebalance import Rebalance
from ottla.machines.groups.request_types import NotYet, answer_only
from ottla.machines.groups.settings import GroupSettings
from ottla.machines.groups.soft_state import SoftState
from ottla.machines.moment import Moment
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

SyncDecision = Decision[GroupRecord, SyncGroupResponse | NotYet]

SEVERAL_LEAVE_SINCE: Final = 3


class MemberRequests:
    """Decides about the requests of members."""

    def __init__(
        self,
        settings: GroupSettings,
        store: GroupStore,
        soft_state: SoftState,
        rebalance: Rebalance,
    ) -> None:
        self._settings = settings
        self._store = store
        self._soft_state = soft_state
        self._rebalance = rebalance

    def sync(self, request: SyncGroupRequest, now: Moment) -> SyncDecision:
        """Decide about a new SyncGroup."""
        try:
            return self._sync(request, now)
        except ApiError as error:
            return answer_only(SyncGroupResponse(error_code=error.code))

    def ask_again(self, wait: NotYet) -> SyncDecision:
        """Respond to a waiting SyncGroup, or keep it waiting.

        The number of the wait is the generation of the awaited assignment.
        """
        try:
            return answer_only(self._answer(wait))
        except ApiError as error:
            return answer_only(SyncGroupResponse(error_code=error.code))

    def heartbeat(
        self, request: HeartbeatRequest, now: Moment
    ) -> Decision[GroupRecord, HeartbeatResponse]:
        """Renew a member's session, and return whether it has to join again."""
        try:
            group = self._store.group_of_member(request.group_id)
            group.check_member(request.member_id, request.group_instance_id)
            group.check_generation(request.generation_id)
        except ApiError as error:
            return answer_only(HeartbeatResponse(error_code=error.code))
        self._rebalance.renew_session(group, request.member_id, now)
        is_rebalancing = group.state is GroupState.PREPARING_REBALANCE
        code = ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE
        return answer_only(HeartbeatResponse(error_code=code))

    def leave(
        self, request: LeaveGroupRequest, api_version: int, now: Moment
    ) -> Decision[GroupRecord, LeaveGroupResponse]:
        """Remove members. Each has a result; older versions have one result for the only member."""
        is_single = api_version < SEVERAL_LEAVE_SINCE
        leaving = [MemberIdentity(member_id=request.member_id)] if is_single else request.members
        if not request.group_id:
            return answer_only(LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        records: tuple[GroupRecord, ...] = ()
        group = self._store.get(request.group_id)
        if group is None:
            codes = [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
        else:
            members_before = len(group.members)
            codes = [self._let_go(group, identity) for identity in leaving]
            records = self._after_leaving(group, len(group.members) < members_before, now)
        if is_single:
            return Decision(records, LeaveGroupResponse(error_code=codes[0]))
        answers = [
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=code,
            )
            for identity, code in zip(leaving, codes, strict=True)
        ]
        return Decision(records, LeaveGroupResponse(members=answers))

    def _sync(self, request: SyncGroupRequest, now: Moment) -> SyncDecision:
        group = self._store.group_of_member(request.group_id)
        group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        _check_same(request.protocol_type, group.protocol_type)
        _check_same(request.protocol_name, group.protocol)
        self._rebalance.renew_session(group, request.member_id, now)
        if group.state is GroupState.COMPLETING_REBALANCE and group.leader == request.member_id:
            return self._take_assignments(group, request, now)
        group.attendance.unsynced.discard(request.member_id)
        if group.state is GroupState.COMPLETING_REBALANCE:
            group.attendance.syncing.add(request.member_id)
        wait = NotYet(
            group.group_id, request.member_id, request.group_instance_id, group.generation
        )
        return answer_only(self._answer(wait))

    def _take_assignments(
        self, group: ClassicGroup, request: SyncGroupRequest, now: Moment
    ) -> SyncDecision:
        work = {each.member_id: each.assignment for each in request.assignments}
        self._check_memory(group, work)
        for member_id in group.members:
            # A waiting member need not send heartbeats: its session restarts now.
            if member_id in group.attendance.syncing:
                self._rebalance.renew_session(group, member_id, now)
        response = _assignment(group, work.get(request.member_id, b""))
        return Decision((group.propose(work, now.wall_ms),), response)

    def _check_memory(self, group: ClassicGroup, work: Mapping[str, bytes]) -> None:
        """Raise ApiError unless there is room for the assignments, twice until they are written."""
        grown_bytes = 2 * sum(len(work.get(member_id, b"")) for member_id in group.members)
        if group.usage.used_bytes + grown_bytes > self._settings.group_bytes_max:
            # As for a group whose record is larger than its topic allows.
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"assignments of {grown_bytes} bytes")
        self._store.check_memory(grown_bytes)

    def _answer(self, wait: NotYet) -> SyncGroupResponse | NotYet:
        group = self._store.group_of_member(wait.group_id)
        member = group.check_member(wait.member_id, wait.group_instance_id)
        is_current = group.generation == wait.number
        if is_current and group.state is GroupState.STABLE:
            return _assignment(group, member.assignment)
        if is_current and group.state is GroupState.COMPLETING_REBALANCE:
            return wait
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "the generation was not completed")

    def _let_go(self, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
        member_id = identity.member_id
        if not member_id:
            # An operator may name a static member without knowing its id.
            member_id = group.static_member_id(identity.group_instance_id) or ""
        if member_id not in group.attendance.pending:
            try:
                group.check_member(member_id, identity.group_instance_id)
            except ApiError as error:
                return error.code
        self._rebalance.remove(group, member_id)
        return ErrorCode.NONE

    def _after_leaving(
        self, group: ClassicGroup, has_shrunk: bool, now: Moment
    ) -> tuple[GroupRecord, ...]:
        if has_shrunk:
            return self._rebalance.advance(group, now)
        records = self._rebalance.complete_if_all_joined(group, now)
        self._store.drop_if_void(group)
        return records


def _check_same(said: str | None, ours: str | None) -> None:
    if said is not None and ours is not None and said != ours:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{said}, and the group has {ours}")


def _assignment(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=assignment
    )
