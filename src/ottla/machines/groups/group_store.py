"""The groups and offsets of one partition of `__consumer_offsets`, and how records change them.

A group exists as long as the log has a record of it or of an offset of it, even a pending one, or
while it has members or joining members.
"""

from collections.abc import Iterable, Iterator

from ottla.machines.groups.classic_group import ClassicGroup, GroupState
from ottla.machines.groups.group_memory import GroupMemory
from ottla.machines.groups.group_records import CommittedOffset, committed_offset
from ottla.machines.groups.pending_offsets import PendingOffsets, Place
from ottla.machines.groups.soft_state import Due, Phase, SoftState
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ProducerId
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

_Stored = tuple[int, int, str, int, int, bytes]


class Offsets:
    """Committed offsets by group, topic and partition; empty levels are removed.

    Only replay writes here.

    Offsets are plain tuples: the garbage collector stops tracking those, while a hundred thousand
    named tuples would cause long pauses again and again.
    """

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, _Stored]]] = {}
        # Dicts in place of sets, for their order.
        self._groups_by_topic: dict[str, dict[str, None]] = {}

    def has_group(self, group_id: str) -> bool:
        """Whether the group has committed anything."""
        return group_id in self._by_group

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return the group's committed offset for a partition."""
        stored = self._by_group.get(group_id, {}).get(topic, {}).get(partition)
        return None if stored is None else CommittedOffset._make(stored)

    def partitions_by_topic(self, group_id: str) -> dict[str, list[int]]:
        """Return the partitions for which the group has committed something."""
        by_topic = self._by_group.get(group_id, {})
        return {topic: list(by_partition) for topic, by_partition in by_topic.items()}

    def count(self, group_id: str) -> int:
        """Return for how many partitions the group has committed an offset."""
        return sum(map(len, self._by_group.get(group_id, {}).values()))

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Iterate over the group's committed offsets: topic, partition, offset."""
        for topic, by_partition in self._by_group.get(group_id, {}).items():
            for partition, stored in by_partition.items():
                yield topic, partition, CommittedOffset._make(stored)

    def of_topic(self, topic: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Iterate over the committed offsets for a topic: group, partition, offset."""
        for group_id in self._groups_by_topic.get(topic, ()):
            for partition, stored in self._by_group[group_id][topic].items():
                yield group_id, partition, CommittedOffset._make(stored)

    def topics(self) -> list[str]:
        """Return the topics for which something is committed."""
        return list(self._groups_by_topic)

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Store an offset, and replace the former one."""
        by_topic = self._by_group.setdefault(group_id, {})
        if topic not in by_topic:
            self._groups_by_topic.setdefault(topic, {})[group_id] = None
        by_topic.setdefault(topic, {})[partition] = (*committed,)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Forget an offset, if there is one."""
        by_topic = self._by_group.get(group_id, {})
        by_partition = by_topic.get(topic, {})
        if by_partition.pop(partition, None) is None:
            return
        if not by_partition:
            del by_topic[topic]
            self._forget_reader(topic, group_id)
        if not by_topic:
            del self._by_group[group_id]

    def _forget_reader(self, topic: str, group_id: str) -> None:
        readers = self._groups_by_topic[topic]
        del readers[group_id]
        if not readers:
            del self._groups_by_topic[topic]


class GroupStore:
    """The groups by id, and their committed offsets."""

    def __init__(self, soft_state: SoftState) -> None:
        self.offsets = Offsets()
        self.pending = PendingOffsets()
        self._soft_state = soft_state
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
        self, key: Message, value: Message | None, producer_id: ProducerId = NO_PRODUCER_ID
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

    def end_transaction(self, producer_id: ProducerId, *, is_commit: bool) -> None:
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
            group.apply_record(value)
            self._soft_state.deadlines.cancel(Due(Phase.JOIN, group_id))
        else:
            # A record of an earlier leader, or a tombstone: the soft state here is void.
            if group is not None:
                self._close(group)
            if value is not None:
                self._take_in(ClassicGroup.loaded(group_id, value))
            elif self._has_offsets(group_id):
                self._take_in(ClassicGroup(group_id))
        self._soft_state.notify(group_id)

    def _put_offset(
        self, place: Place, committed: CommittedOffset, producer_id: ProducerId
    ) -> None:
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
            self._soft_state.end_session(group.group_id, member_id)
        self._soft_state.deadlines.cancel(Due(Phase.JOIN, group.group_id))
        self._soft_state.deadlines.cancel(Due(Phase.SYNC, group.group_id))
        group.move(GroupState.DEAD)
        group.usage.unshare()
        del self._groups[group.group_id]
