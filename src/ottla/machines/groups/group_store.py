"""The groups and offsets of one partition of `__consumer_offsets`, and how records change them.

A group exists as long as the log has a record of it or of an offset of it, even a pending one, or
while it has members or joining members.
"""

from collections.abc import Iterable

from ottla.machines.groups.classic_group import ClassicGroup, GroupState
from ottla.machines.groups.group_memory import GroupMemory
from ottla.machines.groups.group_records import CommittedOffset, committed_offset
from ottla.machines.groups.offsets import Offsets
from ottla.machines.groups.pending_offsets import PendingOffsets, Place
from ottla.machines.groups.soft_state import Due, Liveness, Phase
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.coordinator_records.classic_group import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.wire.records.batch import NO_PRODUCER_ID
from ottla.wire.schema import Message


class Roster:
    """The groups by id, and their committed offsets."""

    def __init__(self, liveness: Liveness) -> None:
        self.offsets = Offsets()
        self.pending = PendingOffsets()
        self._liveness = liveness
        self._groups: dict[str, ClassicGroup] = {}
        self._memory: GroupMemory | None = None

    def share(self, memory: GroupMemory) -> None:
        """Let this store count towards the memory of all groups of the broker."""
        self._memory = memory
        self.pending.usage.share(memory)
        for group in self._groups.values():
            group.usage.share(memory)

    def unshare(self) -> None:
        """Stop counting it: nothing of it is used any longer."""
        self._memory = None
        self.pending.usage.unshare()
        for group in self._groups.values():
            group.usage.unshare()

    def check_memory(self, size_bytes: int) -> None:
        """Raise ApiError unless all groups together may take so much more."""
        if self._memory is not None:
            self._memory.check(size_bytes)

    def __len__(self) -> int:
        return len(self._groups)

    def group_ids(self) -> list[str]:
        """Return the ids of all groups."""
        return list(self._groups)

    def groups(self) -> Iterable[ClassicGroup]:
        """Return all groups."""
        return self._groups.values()

    def get(self, group_id: str) -> ClassicGroup | None:
        """Return a group, or None."""
        return self._groups.get(group_id)

    def group_of_member(self, group_id: str) -> ClassicGroup:
        """Return the group of a request from a member; raise if it cannot have members."""
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "the id is empty")
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id}")
        return group

    def admit(self, group: ClassicGroup) -> None:
        """Add a group that a member has joined. The log does not contain it until later."""
        if group.group_id not in self._groups:
            self._take_in(group)

    def drop_if_void(self, group: ClassicGroup) -> None:
        """Remove a group without members that is not in the log."""
        is_logged = group.stored_ms is not None or self._has_offsets(group.group_id)
        is_used = group.state is not GroupState.EMPTY or group.attendance.pending
        if not is_logged and not is_used:
            self._close(group)

    def replay(
        self, key: Message, value: Message | None, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply one record of the log. Kinds that are not of classic groups are passed over.

        An offset that a transaction of a producer commits is pending until it ends.
        """
        if isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._replay_group(key.group, value)
        elif isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            if value is None:
                self._remove_offset(key.group, key.topic, key.partition)
            else:
                assert isinstance(value, OffsetCommitValue | LegacyOffsetCommitValue)
                place = Place(key.group, key.topic, key.partition)
                self._put_offset(place, committed_offset(value), producer_id)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Apply the marker that ends a producer's transaction."""
        for place, committed in self.pending.end(producer_id, is_commit=is_commit):
            if committed is not None:
                self.offsets.put(*place, committed)
            group = self._groups.get(place.group_id)
            if group is not None:
                self.drop_if_void(group)

    def _replay_group(self, group_id: str, value: GroupMetadataValue | None) -> None:
        group = self._groups.get(group_id)
        if group is not None and value is not None and group.proposed == value:
            group.settle(value)
            self._liveness.deadlines.cancel(Due(Phase.JOIN, group_id))
        else:
            # A record of an earlier leader, or a tombstone: the soft state here is void.
            if group is not None:
                self._close(group)
            if value is not None:
                self._take_in(ClassicGroup.loaded(group_id, value))
            elif self._has_offsets(group_id):
                self._take_in(ClassicGroup(group_id))
        self._liveness.notify(group_id)

    def _put_offset(self, place: Place, committed: CommittedOffset, producer_id: int) -> None:
        if place.group_id not in self._groups:
            self._take_in(ClassicGroup(place.group_id))
        if producer_id != NO_PRODUCER_ID:
            self.pending.put(producer_id, place, committed)
            return
        self.pending.overtake(place)
        self.offsets.put(*place, committed)

    def _remove_offset(self, group_id: str, topic: str, partition: int) -> None:
        self.offsets.remove(group_id, topic, partition)
        self.pending.forget(Place(group_id, topic, partition))
        group = self._groups.get(group_id)
        if group is not None:
            self.drop_if_void(group)

    def _has_offsets(self, group_id: str) -> bool:
        return self.offsets.has_group(group_id) or self.pending.has_group(group_id)

    def _take_in(self, group: ClassicGroup) -> None:
        self._groups[group.group_id] = group
        if self._memory is not None:
            group.usage.share(self._memory)

    def _close(self, group: ClassicGroup) -> None:
        for member_id in (*group.members, *group.attendance.pending):
            self._liveness.end_session(group.group_id, member_id)
        self._liveness.deadlines.cancel(Due(Phase.JOIN, group.group_id))
        self._liveness.deadlines.cancel(Due(Phase.SYNC, group.group_id))
        group.move(GroupState.DEAD)
        group.usage.unshare()
        del self._groups[group.group_id]
