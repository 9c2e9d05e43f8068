"""The committed offsets of groups. Only replay writes here."""

from collections.abc import Iterator

from ottla.machines.groups.group_records import CommittedOffset

_Stored = tuple[int, int, str, int, int, bytes]


class Offsets:
    """Committed offsets by group, topic and partition; empty levels are removed.

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
