"""What groups have committed. Only replaying writes here."""

from collections.abc import Iterator

from ottla.machines.groups.group_records import CommittedOffset


class Offsets:
    """Committed offsets by group, topic and partition, with nothing kept for what is gone."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}

    def has_group(self, group_id: str) -> bool:
        """Whether the group has committed anything."""
        return group_id in self._by_group

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return what the group has committed for a partition."""
        return self._by_group.get(group_id, {}).get(topic, {}).get(partition)

    def by_topic(self, group_id: str) -> dict[str, dict[int, CommittedOffset]]:
        """Return all that the group has committed, to be read only."""
        return self._by_group.get(group_id, {})

    def count(self, group_id: str) -> int:
        """Return for how many partitions the group has committed an offset."""
        return sum(map(len, self._by_group.get(group_id, {}).values()))

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Go through what the group has committed: topic, partition, offset."""
        for topic, by_partition in self._by_group.get(group_id, {}).items():
            for partition, committed in by_partition.items():
                yield topic, partition, committed

    def group_ids(self) -> list[str]:
        """Return the groups that have committed something."""
        return list(self._by_group)

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Remember an offset in place of the one before."""
        by_topic = self._by_group.setdefault(group_id, {})
        by_topic.setdefault(topic, {})[partition] = committed

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Forget an offset, if there is one."""
        by_topic = self._by_group.get(group_id, {})
        by_partition = by_topic.get(topic, {})
        if by_partition.pop(partition, None) is None:
            return
        if not by_partition:
            del by_topic[topic]
        if not by_topic:
            del self._by_group[group_id]
