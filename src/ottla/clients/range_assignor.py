"""Kafka's range assignor: of each topic, every member gets neighbouring partitions."""

from collections.abc import Mapping, Sequence

from ottla.model.identifiers import TopicPartition


def assign_ranges(
    topics_by_member: Mapping[str, Sequence[str]], partition_count_by_topic: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Share out the partitions of each topic among the members that want it, in their order.

    The first members get one more where it does not come out even.
    """
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in topics_by_member}
    for topic, count in sorted(partition_count_by_topic.items()):
        members = sorted(member for member, wanted in topics_by_member.items() if topic in wanted)
        if not members:
            continue
        share, rest = divmod(count, len(members))
        start = 0
        for number, member in enumerate(members):
            end = start + share + (number < rest)
            assigned[member] += [
                TopicPartition(topic, partition) for partition in range(start, end)
            ]
            start = end
    return assigned
