"""JoinGroup: admission to a group, member ids, and waiting for the other members.

A dynamic member first gets an id and joins again with it (since version 4), so that a client that
vanishes in between leaves no member behind. A static member that comes back keeps its place under a
new id; if the group is stable and its protocol does not change, there is no rebalance.
"""

from typing import Final
from uuid import UUID

from ottla.machines.decision import Decision
from ottla.machines.groups.classic_group import ClassicGroup, GroupState
from ottla.machines.groups.group_records import GroupRecord
from ottla.machines.groups.group_store import GroupStore
from ottla.machines.groups.member import Member
from ottla.machines.groups.rebalance import Rebalance
from ottla.machines.groups.request_types import Caller, NotYet, answer_only
from ottla.machines.groups.settings import GroupSettings
from ottla.machines.groups.soft_state import SoftState
from ottla.machines.moment import Moment
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

JoinDecision = Decision[GroupRecord, JoinGroupResponse | NotYet]

REBALANCE_TIMEOUT_SINCE: Final = 1
MEMBER_ID_REQUIRED_SINCE: Final = 4
SKIP_ASSIGNMENT_SINCE: Final = 9
MEMBER_ID_PREFIX_CHARACTERS_MAX: Final = 255
"""Longer names of clients are cut, so that ids fit into any version of the protocol."""


class JoinGroupRequests:
    """Decides about JoinGroup."""

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

    def join(
        self, request: JoinGroupRequest, caller: Caller, fresh_uuid: bytes, now: Moment
    ) -> JoinDecision:
        """Decide about a new request."""
        try:
            return self._join(request, caller, fresh_uuid, now)
        except ApiError as error:
            return answer_only(_refusal(request.member_id, error.code))

    def ask_again(self, wait: NotYet) -> JoinDecision:
        """Respond to a waiting request, or keep it waiting."""
        try:
            return answer_only(self._answer(wait))
        except ApiError as error:
            return answer_only(_refusal("", error.code))

    def _join(
        self, request: JoinGroupRequest, caller: Caller, fresh_uuid: bytes, now: Moment
    ) -> JoinDecision:
        self._check_request(request)
        group = self._find_group(request)
        member = _described_member(request, caller)
        known_id = member.member_id or group.static_member_id(member.group_instance_id) or ""
        if not self._has_room(group, known_id):
            return self._turn_away(group, known_id, now)
        self._check_memory(group, group.members.get(known_id), member)
        if not group.supports(request.protocol_type, member.metadata_by_protocol):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.protocol_type)
        if member.member_id:
            return self._join_as_known(group, member, request.protocol_type, now)
        prefix = (member.group_instance_id or caller.client_id)[:MEMBER_ID_PREFIX_CHARACTERS_MAX]
        member.member_id = f"{prefix}-{UUID(bytes=fresh_uuid)}"
        if known_id:
            return self._return_static(group, known_id, member, caller, now)
        is_dynamic = member.group_instance_id is None
        if is_dynamic and caller.api_version >= MEMBER_ID_REQUIRED_SINCE:
            return self._hand_out_id(group, member, now)
        return self._add(group, member, request.protocol_type, now)

    def _join_as_known(
        self, group: ClassicGroup, member: Member, protocol_type: str, now: Moment
    ) -> JoinDecision:
        if member.member_id in group.attendance.pending and member.group_instance_id is None:
            return self._add(group, member, protocol_type, now)
        group.check_member(member.member_id, member.group_instance_id)
        return self._rejoin(group, member, now)

    def _check_request(self, request: JoinGroupRequest) -> None:
        settings = self._settings
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "the id is empty")
        shortest, longest = (
            settings.group_min_session_timeout_ms,
            settings.group_max_session_timeout_ms,
        )
        if not shortest <= request.session_timeout_ms <= longest:
            raise ApiError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"{request.session_timeout_ms} ms, allowed are {shortest} to {longest}",
            )

    def _find_group(self, request: JoinGroupRequest) -> ClassicGroup:
        """Return the group; for a member without an id a new group, which is not stored yet."""
        if request.member_id:
            return self._store.group_of_member(request.group_id)
        return self._store.get(request.group_id) or ClassicGroup(request.group_id)

    def _has_room(self, group: ClassicGroup, known_id: str) -> bool:
        """Whether there is room for the member of this id, or for a new member.

        During a rebalance, the joined members count, so that a group above a lowered limit loses
        the members that join last.
        """
        limit = self._settings.group_max_size
        attendance = group.attendance
        if group.state is GroupState.PREPARING_REBALANCE:
            return known_id in attendance.joining or len(attendance.joining) < limit
        return known_id in group.members or len(group.members) < limit

    def _check_memory(self, group: ClassicGroup, known: Member | None, member: Member) -> None:
        """Raise ApiError unless there is memory for the member's metadata."""
        before = 0 if known is None else known.described_bytes()
        grown_bytes = member.described_bytes() - before
        if grown_bytes <= 0:
            return
        limit = self._settings.group_bytes_max
        if group.usage.used_bytes + grown_bytes > limit:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"no room for {grown_bytes} bytes: the group takes {group.usage.used_bytes} bytes,"
                f" ottla.group.max.bytes is {limit}",
            )
        self._store.check_memory(grown_bytes)

    def _turn_away(self, group: ClassicGroup, known_id: str, now: Moment) -> JoinDecision:
        records: tuple[GroupRecord, ...] = ()
        if known_id in group.members or known_id in group.attendance.pending:
            self._rebalance.remove(group, known_id)
            records = self._rebalance.complete_if_all_joined(group, now)
        return Decision(records, _refusal("", ErrorCode.GROUP_MAX_SIZE_REACHED))

    def _hand_out_id(self, group: ClassicGroup, member: Member, now: Moment) -> JoinDecision:
        self._admit(group, member)
        group.expect(member.member_id)
        self._soft_state.start_session(
            group.group_id, member.member_id, now, member.session_timeout_ms
        )
        return answer_only(_refusal(member.member_id, ErrorCode.MEMBER_ID_REQUIRED))

    def _add(
        self, group: ClassicGroup, member: Member, protocol_type: str, now: Moment
    ) -> JoinDecision:
        self._admit(group, member)
        attendance = group.attendance
        group.stop_expecting(member.member_id)
        attendance.has_grown = True
        group.add(member, protocol_type)
        attendance.new.add(member.member_id)
        self._soft_state.start_session(
            group.group_id, member.member_id, now, self._settings.new_member_join_timeout_ms
        )
        return self._wait(group, member, now)

    def _admit(self, group: ClassicGroup, member: Member) -> None:
        """Add the group if it is new; raise if there is no memory for it or for a session."""
        if member.member_id in group.attendance.pending:
            return
        if len(self._soft_state.deadlines) >= self._settings.sessions_max:
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, "no room for another session")
        is_new = self._store.get(group.group_id) is None
        if is_new and len(self._store) >= self._settings.groups_max:
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, "no room for another group")
        self._store.admit(group)

    def _return_static(
        self, group: ClassicGroup, old_id: str, member: Member, caller: Caller, now: Moment
    ) -> JoinDecision:
        old_leader = group.leader
        group.replace(old_id, member)
        self._soft_state.end_session(group.group_id, old_id)
        self._rebalance.renew_session(group, member.member_id, now)
        self._soft_state.notify(group.group_id)
        if group.state is not GroupState.STABLE or group.vote() != group.protocol:
            return self._wait(group, member, now)
        work = {member_id: each.assignment for member_id, each in group.members.items()}
        response = group.join_response(member.member_id)
        if caller.api_version >= SKIP_ASSIGNMENT_SINCE:
            response.skip_assignment = group.leader == member.member_id
        else:
            # The old leader would assign again without any member noticing: make it a follower.
            response.leader = old_leader or ""
            response.members = []
        return Decision((group.propose(work, now.wall_ms),), response)

    def _rejoin(self, group: ClassicGroup, member: Member, now: Moment) -> JoinDecision:
        is_unchanged = group.members[member.member_id].supports_the_same(
            member.metadata_by_protocol
        )
        is_leader = member.member_id == group.leader
        completes = group.state is GroupState.COMPLETING_REBALANCE
        if is_unchanged and (completes or (group.state is GroupState.STABLE and not is_leader)):
            # It may have missed the response: it gets the current generation once more.
            return answer_only(group.join_response(member.member_id))
        group.update(member)
        return self._wait(group, member, now)

    def _wait(self, group: ClassicGroup, member: Member, now: Moment) -> JoinDecision:
        wait = NotYet(
            group.group_id,
            member.member_id,
            member.group_instance_id,
            self._soft_state.next_number(),
        )
        if member.member_id in group.attendance.joining:
            # An earlier waiting request of the same member is obsolete, and gets an error.
            self._soft_state.notify(group.group_id)
        group.attendance.joining[member.member_id] = wait.number
        records = self._rebalance.advance(group, now)
        return Decision(records, self._answer(wait))

    def _answer(self, wait: NotYet) -> JoinGroupResponse | NotYet:
        group = self._store.group_of_member(wait.group_id)
        attendance = group.attendance
        if attendance.joining.get(wait.member_id) == wait.number:
            return wait
        answer = attendance.join_answers.get(wait.member_id)
        if answer is not None and answer.number == wait.number:
            del attendance.join_answers[wait.member_id]
            return answer.response
        group.check_member(wait.member_id, wait.group_instance_id)
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "the member has joined once more")


def _refusal(member_id: str, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(member_id=member_id, error_code=code)


def _described_member(request: JoinGroupRequest, caller: Caller) -> Member:
    has_timeout = caller.api_version >= REBALANCE_TIMEOUT_SINCE
    return Member(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=(
            request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms
        ),
        metadata_by_protocol={p.name: p.metadata for p in request.protocols},
    )
