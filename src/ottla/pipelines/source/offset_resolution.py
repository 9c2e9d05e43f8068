"""Resolves the bounds of a read to offsets, and keeps a stream's offsets in Spark's checkpoint.

Spark writes the offsets after each micro-batch. The format matches Spark's Kafka source, with
additions under names that no topic can have:

    {"orders": {"0": 23, "1": 7}, "#topicIds": {"orders": "kFe4…"}, "#from": {"orders": {"0": 0}}}

The ids tell a topic from a later one of the same name. `#from` is the start of the first
micro-batch. Spark does not record that start, and "latest" would resolve to another offset if a
query is restarted during its first micro-batch.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.clients.tables.errors import SourceReadError
from ottla.clients.tables.topic_cluster import TopicCluster, TopicShape
from ottla.model.identifiers import (
    TopicPartition,
    partitions_by_topic,
    uuid_from_text,
    uuid_to_text,
)
from ottla.model.isolation_level import LATEST
from ottla.model.settings.settings import nearest_to
from ottla.pipelines.source.bounds import Bound
from ottla.pipelines.source.errors import SourceOptionError
from ottla.pipelines.source.options import Topics

TOPIC_IDS: Final = "#topicIds"
FROM: Final = "#from"
INITIAL: Final = "#initial"
_NOT_TOPICS: Final = (TOPIC_IDS, FROM, INITIAL)

_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """An end offset for each partition, and the ids of their topics."""

    offset_by_partition: Mapping[TopicPartition, int]
    id_by_topic: Mapping[str, bytes] = field(default_factory=dict)
    is_initial: bool = False
    """Whether this is the start of a query that has read nothing yet."""
    begins_at: "SourceOffsets | None" = None
    """The start of the first micro-batch, if this is its end."""

    def has_same_topic(self, other: "SourceOffsets", topic: str) -> bool:
        """Whether both have the same id for a topic; an unknown id matches any."""
        mine, theirs = self.id_by_topic.get(topic), other.id_by_topic.get(topic)
        return mine is None or theirs is None or mine == theirs

    def as_json(self) -> dict[str, Any]:
        """Return the form that Spark keeps in the checkpoint."""
        written = _numbers_json(self.offset_by_partition)
        if self.id_by_topic:
            written[TOPIC_IDS] = {
                name: uuid_to_text(raw) for name, raw in sorted(self.id_by_topic.items())
            }
        if self.is_initial:
            written[INITIAL] = True
        if self.begins_at is not None:
            written[FROM] = self.begins_at.as_json()
        return written


def offsets_of(written: Mapping[str, Any]) -> SourceOffsets:
    """Parse offsets from `as_json` or Spark's Kafka source; SourceReadError for any other form.

    Programs can use it for the offsets in the progress of a query.
    """
    try:
        begins_at = written.get(FROM)
        return SourceOffsets(
            {
                TopicPartition(topic, int(partition)): int(offset)
                for topic, offsets in written.items()
                if topic not in _NOT_TOPICS
                for partition, offset in offsets.items()
            },
            {topic: uuid_from_text(text) for topic, text in written.get(TOPIC_IDS, {}).items()},
            is_initial=bool(written.get(INITIAL)),
            begins_at=None if begins_at is None else offsets_of(begins_at),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise SourceReadError(
            f"the checkpoint has offsets that this source did not write ({error}): {written}"
        ) from None


def _numbers_json(number_by_partition: Mapping[TopicPartition, int]) -> dict[str, Any]:
    names: Iterable[TopicPartition] = sorted(number_by_partition)
    return {
        topic: {str(name.partition): number_by_partition[name] for name in named}
        for topic, named in partitions_by_topic(names).items()
    }


def find_topics(
    cluster: TopicCluster, topics: Topics, gone: Collection[str] = ()
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


def all_topics(cluster: TopicCluster, topics: Topics) -> dict[str, TopicShape]:
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
    cluster: TopicCluster,
    bound: Bound,
    partitions: Collection[TopicPartition],
    *,
    is_committed_only: bool,
    is_latest_where_time_is_missing: bool,
) -> dict[TopicPartition, int]:
    """Return the offset of a bound in each partition."""
    _check_named(bound, partitions)
    times = bound.times_for(partitions)
    wanted = times or {name: _explicit_offset(bound, name) for name in partitions}
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


def _explicit_offset(bound: Bound, name: TopicPartition) -> int:
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
