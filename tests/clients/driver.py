"""What a story needs of a client library: each has a driver, and the stories are told once.

A driver holds the address of a broker and nothing that has to be closed; a member of a group does.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

SECONDS_MAX = 60
"""How long anything may take before it has failed; nothing takes as long."""
SESSION_MS = 6_000
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
        """Return what has come, after waiting for a moment at most."""

    @abstractmethod
    def partitions(self) -> set[int]:
        """Return what it has to read now."""

    @abstractmethod
    def close(self) -> list[Received]:
        """Commit what was read, go, and return what was read and not yet returned.

        A static member says nothing as it goes.
        """


class Driver(ABC):
    """One client library, and one broker."""

    name: str
    has_admin = True
    """Whether the client changes topics and lists groups; else those methods are not there."""
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

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        """Make a topic. Settings have underscores for dots."""
        raise NotImplementedError

    def add_partitions(self, name: str, count: int) -> None:
        """Let a topic have this many partitions."""
        raise NotImplementedError

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        raise NotImplementedError

    def groups(self) -> set[str]:
        """Return the ids of all groups."""
        raise NotImplementedError


def dotted(settings: dict[str, str]) -> dict[str, str]:
    """Return settings under Kafka's names."""
    return {name.replace("_", "."): value for name, value in settings.items()}


def read_until(
    members: Sequence[Member], is_so: Callable[[list[Received]], bool]
) -> list[Received]:
    """Let all members poll, as they must while partitions change hands, until it has come true."""
    found: list[Received] = []
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so(found):
        shares = [sorted(member.partitions()) for member in members]
        assert time.monotonic() < deadline, f"{len(found)} records were read, shares are {shares}"
        for member in members:
            found += member.read()
    return found


def close_together(members: Sequence[Member]) -> None:
    """Close all at once: one that rejoins as another leaves waits for those that poll no more."""
    with ThreadPoolExecutor(len(members)) as pool:
        list(pool.map(lambda member: member.close(), members))
