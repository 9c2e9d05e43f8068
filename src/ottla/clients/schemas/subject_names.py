"""The subject of a topic's schema, by Confluent's strategies."""

from collections.abc import Callable
from typing import Final

SubjectName = Callable[[str, str, str | None], str]
"""The subject for a topic, a part (key or value) and the full name of the record."""


def topic_name(topic: str, part: str, record_name: str | None) -> str:  # noqa: ARG001
    """TopicNameStrategy: `orders-value`."""
    return f"{topic}-{part}"


def record_name(topic: str, part: str, record_name: str | None) -> str:  # noqa: ARG001
    """RecordNameStrategy: `shop.Order`; ValueError for a schema without a name."""
    return _named(record_name, "RecordNameStrategy")


def topic_record_name(topic: str, part: str, record_name: str | None) -> str:  # noqa: ARG001
    """TopicRecordNameStrategy: `orders-shop.Order`; ValueError for a schema without a name."""
    return f"{topic}-{_named(record_name, 'TopicRecordNameStrategy')}"


def _named(record_name: str | None, strategy: str) -> str:
    if not record_name:
        raise ValueError(
            f"{strategy} needs a schema with a name: a record, a message, or a JSON Schema with a "
            "title; use TopicNameStrategy"
        )
    return record_name


_JAVA_PACKAGE: Final = "io.confluent.kafka.serializers.subject."
_BY_NAME: Final[dict[str, SubjectName]] = {
    "TopicNameStrategy": topic_name,
    "RecordNameStrategy": record_name,
    "TopicRecordNameStrategy": topic_record_name,
}
STRATEGY_NAMES: Final = ", ".join(_BY_NAME)
BY_NAME: Final = (
    _BY_NAME
    | {f"{_JAVA_PACKAGE}{name}": strategy for name, strategy in _BY_NAME.items()}
    | {"topic": topic_name, "record": record_name, "topic_record": topic_record_name}
)
"""The strategies by name: short, of Confluent's Java classes, and of its other clients."""


def find_strategy(given: str | SubjectName) -> SubjectName:
    """Return a strategy, looked up by name; ValueError if there is none."""
    if callable(given):
        return given
    for name in (given, given.lower()):
        if name in BY_NAME:
            return BY_NAME[name]
    raise ValueError(given)
