"""A topic as read_committed readers see it, and whether any transaction is still open."""

import time
from collections.abc import Callable

from ottla import Admin, Consumer
from ottla.clients.admin.admin_offsets import OffsetSpec
from ottla.model.identifiers import TopicPartition

SECONDS_MAX = 240


def wait_for(condition: Callable[[], bool], what: str, seconds_max: float = SECONDS_MAX) -> None:
    """Return when it holds; AssertionError if it does not in time."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds_max} s: {what}"
        time.sleep(0.02)


def partitions_of(admin: Admin, topic: str) -> list[TopicPartition]:
    found = admin.topics.describe(topic)[topic]
    return [TopicPartition(topic, each.partition) for each in found.partitions]


def is_stable(servers: str, topic: str) -> bool:
    """Whether no transaction is open in a topic."""
    with Admin(bootstrap_servers=servers) as admin:
        latest = dict.fromkeys(partitions_of(admin, topic), OffsetSpec.LATEST)
        return admin.offsets.find(latest, is_committed_only=True) == admin.offsets.find(latest)


def committed(servers: str, topic: str) -> list[str]:
    """Return the values that are committed now, in the order of partitions and offsets."""
    with Admin(bootstrap_servers=servers) as admin:
        partitions = partitions_of(admin, topic)
    with Consumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        rows: list[tuple[int, int, str]] = []
        while any(consumer.position(name) < end for name, end in ends.items()):
            found = consumer.poll_arrow(["partition", "offset", "value"], timeout=0.2)
            columns = [found.column(name).to_pylist() for name in ("partition", "offset", "value")]
            rows += [(p, o, v.decode()) for p, o, v in zip(*columns, strict=True)]
    return [value for _, _, value in sorted(rows)]


def all_committed(servers: str, topic: str) -> list[str]:
    """Wait until no transaction is open in a topic, and return the committed values."""
    wait_for(lambda: is_stable(servers, topic), f"{topic} has no open transactions")
    return committed(servers, topic)
