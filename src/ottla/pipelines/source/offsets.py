"""The offsets of a stream, which Spark writes into the checkpoint after each micro-batch.

The format matches Spark's Kafka source, with additions under names that no topic can have:

    {"orders": {"0": 23, "1": 7}, "#topicIds": {"orders": "kFe4…"}, "#from": {"orders": {"0": 0}}}

The ids tell a topic from a later one of the same name. `#from` is the start of the first
micro-batch. Spark does not record that start, and "latest" would resolve to another offset if a
query is restarted during its first micro-batch.
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
