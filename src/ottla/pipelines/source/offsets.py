"""How far a stream has come: what Spark writes into the checkpoint after each micro-batch.

The shape is that of Spark's Kafka source, with a little more under names that no topic can have:

    {"orders": {"0": 23, "1": 7}, "#topicIds": {"orders": "kFe4…"}, "#from": {"orders": {"0": 0}}}

The ids tell a topic from another that was made later under the same name. `#from` is where the
first micro-batch begins: Spark does not write that down, and "latest" would be another place when
a query is started again before its first micro-batch is over.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.model.identifiers import (
    TopicPartition,
    partitions_by_topic,
    uuid_from_text,
    uuid_to_text,
)
from ottla.pipelines.source.errors import SourceReadError

TOPIC_IDS: Final = "#topicIds"
FROM: Final = "#from"
INITIAL: Final = "#initial"
_NOT_TOPICS: Final = (TOPIC_IDS, FROM, INITIAL)


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """An end offset for each partition, and the ids of their topics."""

    offset_by_partition: Mapping[TopicPartition, int]
    id_by_topic: Mapping[str, bytes] = field(default_factory=dict)
    is_initial: bool = False
    """Whether this is where a query begins that has read nothing yet."""
    begins_at: "SourceOffsets | None" = None
    """Where the first micro-batch begins, if this is its end."""

    def has_same_topic(self, other: "SourceOffsets", topic: str) -> bool:
        """Whether both know a topic by the same id, or one of them by none."""
        mine, theirs = self.id_by_topic.get(topic), other.id_by_topic.get(topic)
        return mine is None or theirs is None or mine == theirs

    def as_json(self) -> dict[str, Any]:
        """Return what Spark is given."""
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
    """Read what as_json wrote, or what Spark's Kafka source did; SourceReadError if it is neither.

    Whoever looks at the progress of a query can read its offsets with this, too.
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
