"""Plans as files: the JSON format of Kafka's kafka-reassign-partitions.

    {"version": 1, "partitions": [{"topic": "letters", "partition": 0, "replicas": [1, 2]}]}

`log_dirs` is accepted if every directory is "any".
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from ottla.model.identifiers import TopicPartition

VERSION: Final = 1
ANY_LOG_DIR: Final = "any"


class InvalidPlanError(ValueError):
    """A file is not a plan; the message is for users."""


def write_plan(plan: Mapping[TopicPartition, Sequence[int]]) -> dict[str, object]:
    """Return the JSON object of a plan."""
    return {
        "version": VERSION,
        "partitions": [
            {
                "topic": name.topic,
                "partition": name.partition,
                "replicas": list(replicas),
                "log_dirs": [ANY_LOG_DIR] * len(replicas),
            }
            for name, replicas in sorted(plan.items())
        ],
    }


def read_plan(text: str | bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Parse a plan; InvalidPlanError names the fault."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise InvalidPlanError(f"it is not JSON: {error}") from None
    if not isinstance(content, dict) or content.get("version", VERSION) != VERSION:
        raise InvalidPlanError(f"it is not an object with version {VERSION}")
    rows = content.get("partitions")
    if not isinstance(rows, list) or not rows:
        raise InvalidPlanError("it has no list of partitions")
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for row in rows:
        name, replicas = _read_row(row)
        if name in plan:
            raise InvalidPlanError(f"{name} is in it twice")
        plan[name] = replicas
    return plan


def _read_row(row: object) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(row, dict):
        raise InvalidPlanError(f"{row!r} is not an object")
    topic, partition, replicas = row.get("topic"), row.get("partition"), row.get("replicas")
    if not isinstance(topic, str) or not isinstance(partition, int):
        raise InvalidPlanError(f"{row!r} names no topic and partition")
    name = TopicPartition(topic, partition)
    if not isinstance(replicas, list) or not all(isinstance(one, int) for one in replicas):
        raise InvalidPlanError(f"{name} has no list of brokers")
    if not replicas or len(set(replicas)) != len(replicas):
        raise InvalidPlanError(f"{name} needs brokers, each of them once: {replicas}")
    if set(row.get("log_dirs", ())) - {ANY_LOG_DIR}:
        raise InvalidPlanError(
            f'{name} names a folder: only "any" can be asked for; '
            "`ottla partition move` moves between folders"
        )
    return name, tuple(replicas)
