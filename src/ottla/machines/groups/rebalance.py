"""Leads a group from one generation to the next.

A rebalance has two phases. First every member has to join: a dynamic member that has not joined
within the longest rebalance timeout of the group is removed. Then the leader has to assign, and
every member to sync, within the same time. A group that was empty first waits for more members,
for as long as they keep coming.
"""

from typing import Final

from ottla.machines.groups.classic_group import ClassicGroup, GroupState
from ottla.machines.groups.group_records import GroupRecord
from ottla.machines.groups.settings import GroupSettings
from ottla.machines.groups.soft_state import Due, JoinAnswer, Phase, SoftState
from ottla.machines.moment import Moment

Records = tuple[GroupRecord, ...]
RETRY_MS_MIN: Final = 1_000
"""The minimum delay before static members are checked again, if none of them has joined.

A group without members also waits this long before it tries again to become empty.
"""


class Rebalance:
    """The state moves of a group, by requests and by deadlines."""

    def __init__(self, settings: GroupSettings, soft_state: SoftState) -> None:
        self._settings = settings
        self._soft_state = soft_state

    def advance(self, group: ClassicGroup, now: Moment) -> Records:
        """Begin a rebalance, or complete the current one if all members have joined."""
        if group.state is GroupState.PREPARING_REBALANCE:
            return self.complete_if_all_joined(group, now)
        return self.prepare(group, now)

    def prepare(self, group: ClassicGroup, now: Moment) -> Records:
        """Make every member join again."""
        is_initial = group.state is GroupState.EMPTY
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._send_away_syncing(group, now)
        self._soft_state.deadlines.cancel(Due(Phase.SYNC, group.group_id))
        group.move(GroupState.PREPARING_REBALANCE)
        group.attendance.is_initial = is_initial
        if is_initial:
            self._await_more(group, now)
            return ()
        if group.has_all_joined():
            return self._complete(group, now)
        self._set_deadline(Phase.JOIN, group, now, group.rebalance_timeout_ms())
        return ()

    def complete_if_all_joined(self, group: ClassicGroup, now: Moment) -> Records:
        """Complete the join phase if no member is missing."""
        if group.state is not GroupState.PREPARING_REBALANCE or not group.has_all_joined():
            return ()
        if group.attendance.is_initial and group.members:
            return ()
        return self._complete(group, now)

    def remove(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member, or a pending one; its waiting requests get a response."""
        group.remove(member_id)
        self._soft_state.end_session(group.group_id, member_id)
        self._soft_state.notify(group.group_id)

    def renew_session(self, group: ClassicGroup, member_id: str, now: Moment) -> None:
        """Restart a member's session timeout."""
        timeout_ms = group.members[member_id].session_timeout_ms
        self._soft_state.start_session(group.group_id, member_id, now, timeout_ms)

    def expire_session(self, group: ClassicGroup, member_id: str, now: Moment) -> Records:
        """Remove a member with an expired session, unless it waits for us."""
        if member_id in group.attendance.pending:
            self.remove(group, member_id)
            return self.complete_if_all_joined(group, now)
        if member_id not in group.members or group.attendance.is_excused(member_id):
            return ()
        self.remove(group, member_id)
        return self.advance(group, now)

    def expire_join(self, group: ClassicGroup, now: Moment) -> Records:
        """End the join phase; extend an initial rebalance if a member has just joined."""
        attendance = group.attendance
        if attendance.is_initial and attendance.has_grown and attendance.delay_left_ms:
            attendance.has_grown = False
            next_delay_ms = min(
                self._settings.group_initial_rebalance_delay_ms, attendance.delay_left_ms
            )
            attendance.delay_left_ms = max(attendance.delay_left_ms - attendance.delay_ms, 0)
            attendance.delay_ms = next_delay_ms
            self._set_deadline(Phase.JOIN, group, now, next_delay_ms)
            return ()
        return self._complete(group, now)

    def expire_sync(self, group: ClassicGroup, now: Moment) -> Records:
        """Remove the members that have not synced in time; if there are any, the others rejoin."""
        late = [member_id for member_id in group.members if member_id in group.attendance.unsynced]
        for member_id in late:
            self.remove(group, member_id)
        return self.prepare(group, now) if late else ()

    def _complete(self, group: ClassicGroup, now: Moment) -> Records:
        self._soft_state.deadlines.cancel(Due(Phase.JOIN, group.group_id))
        group.attendance.is_initial = False
        for member in list(group.members.values()):
            has_joined = member.member_id in group.attendance.joining
            if not has_joined and member.group_instance_id is None:
                self.remove(group, member.member_id)
        if not group.members:
            # It is empty once that is in the log, which may not take it now.
            self._set_deadline(Phase.JOIN, group, now, RETRY_MS_MIN)
            return (group.propose_empty(now.wall_ms),)
        if group.elect():
            self._begin_generation(group, now)
        else:
            timeout_ms = max(group.rebalance_timeout_ms(), RETRY_MS_MIN)
            self._set_deadline(Phase.JOIN, group, now, timeout_ms)
        return ()

    def _begin_generation(self, group: ClassicGroup, now: Moment) -> None:
        group.begin_generation()
        attendance = group.attendance
        for member_id, number in attendance.joining.items():
            attendance.join_answers[member_id] = JoinAnswer(number, group.join_response(member_id))
        attendance.joining.clear()
        attendance.new.clear()
        attendance.unsynced = set(group.members)
        for member_id in group.members:
            self.renew_session(group, member_id, now)
        self._set_deadline(Phase.SYNC, group, now, group.rebalance_timeout_ms())
        self._soft_state.notify(group.group_id)

    def _await_more(self, group: ClassicGroup, now: Moment) -> None:
        delay_ms = self._settings.group_initial_rebalance_delay_ms
        group.attendance.has_grown = False
        group.attendance.delay_ms = delay_ms
        group.attendance.delay_left_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
        self._set_deadline(Phase.JOIN, group, now, delay_ms)

    def _send_away_syncing(self, group: ClassicGroup, now: Moment) -> None:
        for member_id in group.members:
            if member_id in group.attendance.syncing:
                # It was excused from heartbeats, so its session may have passed unnoticed.
                self.renew_session(group, member_id, now)
        group.attendance.syncing.clear()
        self._soft_state.notify(group.group_id)

    def _set_deadline(self, phase: Phase, group: ClassicGroup, now: Moment, delay_ms: int) -> None:
        self._soft_state.deadlines.set(Due(phase, group.group_id), now, delay_ms)
