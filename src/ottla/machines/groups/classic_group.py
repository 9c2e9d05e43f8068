"""A classic group: members that agree on a protocol, generation by generation.

                 a member joins            all have joined, or time is up
        Empty ----------------> Preparing -------------------------------> Completing
          ^                     Rebalance <------------------------------- Rebalance
          |   group is empty     |  ^   a member joins, leaves or dies         |
          +----------------------+  |                                          | the leader
                                    |                                          | assigns
                                    +---------------- Stable <-----------------+

The log contains a group only as stable or empty: `apply_record` applies the replayed state. The
states in between are lost with the machine, and the members join again.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from ottla.machines.groups.group_memory import MEMBER_ID_BYTES, Usage, text_bytes
from ottla.machines.groups.group_records import GroupRecord, group_record
from ottla.machines.groups.member import Member
from ottla.machines.groups.soft_state import Attendance
from ottla.machines.groups.subscriptions import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.coordinator_records.classic_group import GroupMetadataValue, MemberMetadata
from ottla.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember

GENERATION_MAX: Final = (1 << 31) - 1


class GroupState(Enum):
    """Where a group stands; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


MOVES: Final = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE, GroupState.DEAD},
    GroupState.PREPARING_REBALANCE: {
        GroupState.COMPLETING_REBALANCE,
        GroupState.EMPTY,
        GroupState.DEAD,
    },
    GroupState.COMPLETING_REBALANCE: {
        GroupState.STABLE,
        GroupState.PREPARING_REBALANCE,
        GroupState.DEAD,
    },
    GroupState.STABLE: {GroupState.PREPARING_REBALANCE, GroupState.DEAD},
    GroupState.DEAD: set(),
}


class ClassicGroup:
    """The whole state of one group.

    `stored_ms` is the time of the record in the log; `proposed` is the latest decision that was not
    replayed yet.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.subscribed_topics: frozenset[str] | None = None
        """None as long as they cannot be known."""
        self.stored_ms: int | None = None
        self.proposed: GroupMetadataValue | None = None
        self.attendance = Attendance()
        self.usage = Usage()
        self.usage.charge(text_bytes(group_id))
        self._member_id_by_instance: dict[str, str] = {}
        self._supporters_by_protocol: Counter[str] = Counter()

    def move(self, state: GroupState) -> None:
        """Make one of the allowed transitions."""
        assert state in MOVES[self.state], f"{self.group_id}: {self.state} to {state}"
        self.state = state

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first sets the type of the group and becomes its leader."""
        assert member.member_id not in self.members
        if not self.members:
            self._set_protocol_type(protocol_type)
        self._enter(member)
        if self.leader is None:
            self.leader = member.member_id
        self._check_leader()

    def expect(self, member_id: str) -> None:
        """Remember an id that was given out, until its member comes back or is removed."""
        self.attendance.pending[member_id] = None
        self.usage.charge(MEMBER_ID_BYTES)

    def stop_expecting(self, member_id: str) -> None:
        """Forget an id that was given out, if it was."""
        if member_id in self.attendance.pending:
            del self.attendance.pending[member_id]
            self.usage.charge(-MEMBER_ID_BYTES)

    def remove(self, member_id: str) -> None:
        """Remove a member, if it is one; if it was the leader, the next member leads."""
        self.stop_expecting(member_id)
        self.attendance.forget(member_id)
        if member_id not in self.members:
            return
        self._strike(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self._check_leader()

    def replace(self, member_id: str, successor: Member) -> None:
        """Replace a static member by its next incarnation, with its assignment and leadership."""
        successor.assignment = self.members[member_id].assignment
        self.attendance.forget(member_id)
        self._strike(member_id)
        self._enter(successor)
        if self.leader == member_id:
            self.leader = successor.member_id
        self._check_leader()

    def update(self, renewed: Member) -> None:
        """Apply a member's new JoinGroup; it stays static or dynamic."""
        current = self.members[renewed.member_id]
        renewed.group_instance_id = current.group_instance_id
        renewed.assignment = current.assignment
        self._withdraw_support(current)
        self.usage.charge(renewed.used_bytes() - current.used_bytes())
        self.members[renewed.member_id] = renewed
        self._supporters_by_protocol.update(renewed.metadata_by_protocol.keys())

    def static_member_id(self, group_instance_id: str | None) -> str | None:
        """Return the id that the static member of this name has now."""
        if group_instance_id is None:
            return None
        return self._member_id_by_instance.get(group_instance_id)

    def check_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """Return the member; raise if it is unknown, or if its instance id has a new member."""
        if group_instance_id is not None:
            current_id = self.static_member_id(group_instance_id)
            if current_id is not None and current_id != member_id:
                raise ApiError(
                    ErrorCode.FENCED_INSTANCE_ID, f"{group_instance_id} is now {current_id}"
                )
            if current_id is None:
                raise _unknown_member(member_id)
        if member_id not in self.members:
            raise _unknown_member(member_id)
        return self.members[member_id]

    def check_generation(self, generation: int) -> None:
        """Raise unless this is the current generation."""
        if generation != self.generation:
            raise ApiError(
                ErrorCode.ILLEGAL_GENERATION, f"{generation}, and the group is at {self.generation}"
            )

    def rebalance_timeout_ms(self) -> int:
        """Return how long the slowest member may take."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def has_all_joined(self) -> bool:
        """Whether all members have joined this rebalance."""
        return len(self.attendance.joining) == len(self.members) and not self.attendance.pending

    def elect(self) -> bool:
        """Ensure that the leader has joined, else elect another; False if no member has joined."""
        joining = self.attendance.joining
        if self.leader not in joining:
            self.leader = next((m for m in self.members if m in joining), self.leader)
        return self.leader in joining

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member with these protocols has one in common with all the others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        return protocol_type == self.protocol_type and any(
            self._supporters_by_protocol[name] == len(self.members) for name in protocols
        )

    def vote(self) -> str:
        """Return the protocol with the most votes among protocols that all members support."""
        common = {
            n for n, count in self._supporters_by_protocol.items() if count == len(self.members)
        }
        votes = Counter(
            next(name for name in member.metadata_by_protocol if name in common)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def begin_generation(self) -> None:
        """Go on to the next generation and its protocol, and await the leader's assignment."""
        assert self.attendance.joining.keys() <= self.members.keys(), self.group_id
        self.generation = self._next_generation()
        self.protocol = self.vote()
        self.subscribed_topics = self._find_topics()
        self.move(GroupState.COMPLETING_REBALANCE)

    def join_response(self, member_id: str) -> JoinGroupResponse:
        """Return a member's JoinGroup response; the leader's has all members."""
        assert self.protocol is not None
        is_leader = member_id == self.leader
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            member_id=member_id,
            members=self._join_response_members(self.protocol) if is_leader else [],
        )

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read this topic, or may do so for all that is known."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def emptied_ms(self) -> int:
        """Return when the last member went, or -1 if there are members, or never were any."""
        if self.state is not GroupState.EMPTY or self.stored_ms is None or not self.protocol_type:
            return -1
        return self.stored_ms

    def propose(self, assignments: Mapping[str, bytes], now_ms: int) -> GroupRecord:
        """Make this generation's record; members that the leader left out get no partitions."""
        assert self.protocol is not None
        members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata_by_protocol[self.protocol],
                assignment=assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        ]
        return self._propose(self.generation, members, now_ms)

    def propose_empty(self, now_ms: int) -> GroupRecord:
        """Create the record of a generation without members."""
        assert not self.members
        self.protocol = None
        return self._propose(self._next_generation(), [], now_ms)

    def apply_record(self, value: GroupMetadataValue) -> None:
        """Apply the record that was proposed, now that it is in the log."""
        is_next = value.generation in {self.generation, self._next_generation()}
        assert is_next, (self.group_id, self.generation, value.generation)
        # An assignment for another member would be stored, and its partitions not consumed.
        stored_ids = [stored.member_id for stored in value.members]
        assert stored_ids == list(self.members), (self.group_id, stored_ids)
        self.stored_ms = value.current_state_timestamp
        self._set_proposed(None)
        self.generation = value.generation
        for stored in value.members:
            member = self.members[stored.member_id]
            self.usage.charge(len(stored.assignment) - len(member.assignment))
            member.assignment = stored.assignment
        self.subscribed_topics = self._find_topics()
        self.attendance.syncing.clear()
        self.attendance.unsynced.discard(self.leader or "")
        state = GroupState.STABLE if self.members else GroupState.EMPTY
        if state is not self.state:
            self.move(state)

    @classmethod
    def loaded(cls, group_id: str, value: GroupMetadataValue) -> "ClassicGroup":
        """Create a group from its last record: of each member only the protocol in use is known."""
        group = cls(group_id)
        group.stored_ms = value.current_state_timestamp
        group.generation = value.generation
        group._set_protocol_type(value.protocol_type or None)
        group.protocol = value.protocol
        for stored in {member.member_id: member for member in value.members}.values():
            group._enter(_loaded_member(stored, value.protocol or ""))
        if group.members:
            group.state = GroupState.STABLE
            group.protocol = value.protocol or ""
            group.leader = (
                value.leader if value.leader in group.members else next(iter(group.members))
            )
        group.subscribed_topics = group._find_topics()
        return group

    def _check_leader(self) -> None:
        is_led = self.leader in self.members if self.members else self.leader is None
        assert is_led, (self.group_id, self.leader)

    def _enter(self, member: Member) -> None:
        self.members[member.member_id] = member
        self.usage.charge(member.used_bytes())
        if member.group_instance_id is not None:
            self._member_id_by_instance[member.group_instance_id] = member.member_id
        self._supporters_by_protocol.update(member.metadata_by_protocol.keys())

    def _strike(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self.usage.charge(-member.used_bytes())
        if member.group_instance_id is not None:
            self._member_id_by_instance.pop(member.group_instance_id, None)
        self._withdraw_support(member)

    def _withdraw_support(self, member: Member) -> None:
        for name in member.metadata_by_protocol:
            self._supporters_by_protocol[name] -= 1
            if not self._supporters_by_protocol[name]:
                del self._supporters_by_protocol[name]

    def _next_generation(self) -> int:
        return self.generation + 1 if self.generation < GENERATION_MAX else 0

    def _find_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        protocol = self.protocol or ""
        return subscribed_topics(m.metadata_by_protocol[protocol] for m in self.members.values())

    def _join_response_members(self, protocol: str) -> list[JoinGroupResponseMember]:
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata_by_protocol[protocol],
            )
            for member in self.members.values()
        ]

    def _propose(self, generation: int, members: list[MemberMetadata], now_ms: int) -> GroupRecord:
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=now_ms,
            members=members,
        )
        self._set_proposed(value)
        return group_record(self.group_id, value)

    def _set_proposed(self, value: GroupMetadataValue | None) -> None:
        # It stays if the log does not take it, and the assignments in it with it.
        self.usage.charge(_assigned_bytes(value) - _assigned_bytes(self.proposed))
        self.proposed = value

    def _set_protocol_type(self, protocol_type: str | None) -> None:
        self.usage.charge(text_bytes(protocol_type) - text_bytes(self.protocol_type))
        self.protocol_type = protocol_type


def _assigned_bytes(value: GroupMetadataValue | None) -> int:
    return 0 if value is None else sum(len(member.assignment) for member in value.members)


def _unknown_member(member_id: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, member_id)


def _loaded_member(stored: MemberMetadata, protocol: str) -> Member:
    timeout_ms = stored.rebalance_timeout
    return Member(
        member_id=stored.member_id,
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout,
        rebalance_timeout_ms=stored.session_timeout if timeout_ms == -1 else timeout_ms,
        metadata_by_protocol={protocol: stored.subscription},
        assignment=stored.assignment,
    )
