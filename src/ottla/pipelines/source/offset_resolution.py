"""Finds the existing partitions, and resolves the bounds of a read to offsets."""

from collections.abc import Collection, Mapping
from typing import Final

from ottla.model.identifiers import TopicPartition
from ottla.model.isolation_level import LATEST
from ottla.model.settings.settings import nearest_to
from ottla.pipelines.source.bounds import Bound
from ottla.pipelines.source.cluster import SourceCluster, TopicShape
from ottla.pipelines.source.errors import SourceOptionError, SourceReadError
from ottla.pipelines.source.options import Topics

_NAMED_MAX: Final = 5


def find_topics(
    cluster: SourceCluster, topics: Topics, gone: Collection[str] = ()
) -> dict[str, TopicShape]:
    """Return the topics that exist; with `assign`, only their assigned partitions.

    Topics in `gone` are known to be deleted, so a missing one causes no retries.
    """
    if topics.pattern:
        return cluster.topics_like(topics.pattern)
    if topics.names:
        return cluster.topics(topics.names, gone)
    assigned = set(topics.partitions)
    found = cluster.topics({name.topic for name in assigned}, gone)
    return {
        topic: TopicShape(
            shape.topic_id, tuple(name for name in shape.partitions if name in assigned)
        )
        for topic, shape in found.items()
    }


def all_topics(cluster: SourceCluster, topics: Topics) -> dict[str, TopicShape]:
    """Return the topics; SourceReadError if a named topic or assigned partition is missing."""
    found = find_topics(cluster, topics)
    for name in topics.names or dict.fromkeys(one.topic for one in topics.partitions):
        if name not in found:
            near = nearest_to(name, list(cluster.topics_like(".*")))
            raise SourceReadError(f"there is no topic {name!r}{near}")
    for one in topics.partitions:
        if one not in found[one.topic].partitions:
            raise SourceReadError(f"topic {one.topic!r} has no partition {one.partition}")
    return found


def partitions_of(shapes: Mapping[str, TopicShape]) -> list[TopicPartition]:
    """Return all partitions of the topics."""
    return [name for shape in shapes.values() for name in shape.partitions]


def resolve(
    cluster: SourceCluster,
    bound: Bound,
    partitions: Collection[TopicPartition],
    *,
    is_committed_only: bool,
    is_latest_where_time_is_missing: bool,
) -> dict[TopicPartition, int]:
    """Return the offset of a bound in each partition."""
    _check_named(bound, partitions)
    times = bound.times_for(partitions)
    wanted = times or {name: _said(bound, name) for name in partitions}
    asked = {name: number for name, number in wanted.items() if times or number < 0}
    found = wanted | cluster.find(asked, is_committed_only=is_committed_only)
    late = [name for name in times if found[name] < 0]
    if late and not is_latest_where_time_is_missing:
        raise SourceReadError(
            f"{bound.option}: {late[0]} has no record at or after {times[late[0]]}; with "
            "startingOffsetsByTimestampStrategy latest, reading would begin at the end"
        )
    ends = cluster.find(dict.fromkeys(late, LATEST), is_committed_only=is_committed_only)
    return found | ends


def _said(bound: Bound, name: TopicPartition) -> int:
    if bound.offset_by_partition is not None:
        return bound.offset_by_partition[name]
    assert bound.everywhere is not None, bound
    return bound.everywhere


def _check_named(bound: Bound, partitions: Collection[TopicPartition]) -> None:
    if bound.named_partitions is None:
        return
    named, there = set(bound.named_partitions), set(partitions)
    for names, what in ((there - named, "does not name"), (named - there, "names")):
        if names:
            listed = ", ".join(map(str, sorted(names)[:_NAMED_MAX]))
            of_others = "" if names <= there else ", which is not read"
            raise SourceOptionError(
                f"{bound.option} must name every partition that is read, and no other: it {what} "
                f"{listed}{of_others}"
            )
