"""The interface between stories and client libraries: one driver per library, one set of stories.

A driver holds the broker's address and no resources; a group member has to be closed.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import NamedTuple

SECONDS_MAX = 240
"""Timeout of every wait; nothing should take as long."""
SESSION_MS = 30_000
"""A busy machine ends no session."""
HEARTBEAT_MS = 200
IMPATIENCE = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
}
"""Settings of librdkafka's by which a story with lost connections takes no longer than it must."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Sent(NamedTuple):
    """A record to produce. Without a timestamp the client sets it."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None


class Received(NamedTuple):
    """A record that was consumed."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Member(ABC):
    """A consumer in a group."""

    rebalances = 0
    """How often it was given partitions."""

    @abstractmethod
    def read(self) -> list[Received]:
        """Return the records that have arrived, after a short wait at most."""

    @abstractmethod
    def partitions(self) -> set[int]:
        """Return the partitions that are assigned now."""

    @abstractmethod
    def close(self) -> list[Received]:
        """Commit the records that were read, leave, and return the records not yet returned.

        A static member leaves without a LeaveGroup request.
        """


class Driver(ABC):
    """One client library, and one broker."""

    name: str
    sets_timestamps = True

    def __init__(self, servers: str) -> None:
        self.servers = servers

    @abstractmethod
    def topics(self) -> dict[str, int]:
        """Return how many partitions each topic has."""

    @abstractmethod
    def produce(
        self,
        topic: str,
        records: Iterable[Sent],
        *,
        codec: str = "none",
        is_idempotent: bool = False,
        records_per_batch: int = 1_000,
    ) -> None:
        """Produce to partition 0, and return when all of it is acknowledged."""

    @abstractmethod
    def consume(self, topic: str, count: int, *, offset: int = 0) -> list[Received]:
        """Read that many records of partition 0, outside of any group."""

    @abstractmethod
    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        """Return the first offset in partition 0 with that timestamp or a later one."""

    @abstractmethod
    def join(
        self,
        group: str,
        topic: str,
        *,
        instance: str | None = None,
        is_cooperative: bool = False,
    ) -> Member:
        """Become a member of a group that reads a topic from its start."""


class AdminDriver(Driver):
    """A client library that also changes topics and lists groups."""

    @abstractmethod
    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        """Make a topic. Settings have underscores for dots."""

    @abstractmethod
    def add_partitions(self, name: str, count: int) -> None:
        """Grow a topic to this many partitions."""

    @abstractmethod
    def delete_topic(self, name: str) -> None:
        """Delete a topic."""

    @abstractmethod
    def groups(self) -> set[str]:
        """Return the ids of all groups."""


def dotted(settings: dict[str, str]) -> dict[str, str]:
    """Return settings under Kafka's names."""
    return {name.replace("_", "."): value for name, value in settings.items()}


def read_until(
    members: Sequence[Member], is_so: Callable[[list[Received]], bool]
) -> list[Received]:
    """Poll with all members, as a rebalance needs, until the condition holds."""
    found: list[Received] = []
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so(found):
        shares = [sorted(member.partitions()) for member in members]
        assert time.monotonic() < deadline, f"{len(found)} records were read, shares are {shares}"
        found += _poll(members)
    return found


def _poll(members: Sequence[Member]) -> list[Received]:
    return [record for member in members for record in member.read()]


def join_together(joins: Iterable[Callable[[], Member]], members: list[Member]) -> None:
    """Add members one after another; the earlier members are polled meanwhile.

    aiokafka waits for its first assignment, and a rebalance waits for members that do not poll.
    """
    with ThreadPoolExecutor(1) as pool:
        for join in joins:
            joining = pool.submit(join)
            while not wait([joining], timeout=0.01).done:
                _poll(members)
            members.append(joining.result())


def close_together(members: Sequence[Member]) -> None:
    """Close all members at the same time: a rejoining member waits for members that do not poll."""
    with ThreadPoolExecutor(len(members)) as pool:
        list(pool.map(lambda member: member.close(), members))
