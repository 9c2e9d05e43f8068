"""Topics for the tests of streams: their input and their output."""

import json
from collections.abc import Iterable
from typing import Any

from ottla import Admin, Consumer, Producer

Sent = tuple[str | None, Any]
"""A key, and a value that is sent as JSON; bytes are sent as they are, None is a tombstone."""


def create(servers: str, *topics: str, partitions: int = 2) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.topics.create(topics, partitions=partitions)


def send(servers: str, topic: str, records: Iterable[Sent], partition: int | None = None) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for key, value in records:
            raw = value if value is None or isinstance(value, bytes) else json.dumps(value)
            producer.send(topic, raw, key=key, partition=partition)


def committed(servers: str, topic: str) -> list[tuple[str | None, Any]]:
    """Return the keys and values of all committed records, partition by partition."""
    return [(key, value) for key, value, _ in with_headers(servers, topic)]


def with_headers(servers: str, topic: str) -> list[tuple[str | None, Any, dict[str, str]]]:
    settings = {"bootstrap.servers": servers, "isolation.level": "read_committed"}
    found = []
    with Consumer(settings) as consumer:
        names = [(topic, each.partition) for each in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(names)
        consumer.assign(names)
        consumer.seek_to_beginning()
        while any(consumer.position(name) < ends[name] for name in names):
            for record in consumer.poll(timeout=1):
                headers = {name: value.decode() for name, value in record.headers}
                key = None if record.key is None else record.key.decode()
                found.append((key, _value(record.value), headers))
    return found


def _value(raw: bytes | None) -> Any:
    if raw is None:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        return raw


def latest(records: Iterable[tuple[str | None, Any]]) -> dict[str | None, Any]:
    """Return the newest value of each key, without deleted keys."""
    newest = dict(records)
    return {key: value for key, value in newest.items() if value is not None}
