"""Replication quotas: the rate of copying replicas (KIP-73, KIP-113).

A quota has a rate, and topics list the replicas that it applies to: `*`, or a list of
`partition:broker`. While the rate is exceeded, listed replicas that are not in sync are left out of
fetches and responses; all others go on. All copied bytes of a listed replica count, also of one in
sync.
"""

from collections import deque
from collections.abc import Collection
from typing import Final

from ottla.environment.clock import Clock
from ottla.model.identifiers import BrokerId
from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.topic_config import NO_LIMIT
from ottla.replication.partition import Partition

EVERY_REPLICA: Final = "*"
WAIT_MS_MIN: Final = 10


class Rate:
    """A rate in bytes per second, over a few windows.

    The divisor is the time since the oldest window began, but never less than one window.
    """

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._windows: deque[list[int]] = deque()
        """When each began, and how many bytes came in it."""
        self._total = 0

    def add(self, size_bytes: int, now_ms: int) -> None:
        """Count some bytes."""
        self._forget(now_ms)
        windows = self._windows
        if not windows or now_ms - windows[-1][0] >= self._window_ms:
            windows.append([now_ms, 0])
        windows[-1][1] += size_bytes
        self._total += size_bytes

    def wait_ms(self, bytes_per_second: int, now_ms: int) -> int:
        """Return how long nothing more may come, to be at this rate; 0 if it is not above it."""
        self._forget(now_ms)
        if not self._total:
            return 0
        elapsed_ms = now_ms - self._windows[0][0]
        if self._total * 1000 <= bytes_per_second * max(elapsed_ms, self._window_ms):
            return 0
        # Bytes above the limit of all windows together delay until the oldest window is dropped.
        span_ms = self._window_count * self._window_ms
        wanted_ms = self._total * 1000 // bytes_per_second if bytes_per_second else span_ms
        return max(min(wanted_ms, span_ms) - elapsed_ms, WAIT_MS_MIN)

    def _forget(self, now_ms: int) -> None:
        windows, span_ms = self._windows, self._window_count * self._window_ms
        while windows and now_ms - windows[0][0] >= span_ms:
            self._total -= windows.popleft()[1]


class Throttle:
    """One quota, and the recently copied bytes. Without a limit it costs nothing."""

    def __init__(self, broker_id: BrokerId, clock: Clock, rate: Rate) -> None:
        self._broker_id = broker_id
        self._clock = clock
        self._rate = rate
        self.bytes_per_second = NO_LIMIT

    @property
    def is_on(self) -> bool:
        """Whether there is a limit."""
        return self.bytes_per_second != NO_LIMIT

    @property
    def is_exceeded(self) -> bool:
        """Whether more was copied than is allowed."""
        return self.wait_ms() > 0

    def wait_ms(self) -> int:
        """Return how long to copy nothing."""
        if not self.is_on:
            return 0
        return self._rate.wait_ms(self.bytes_per_second, self._clock.monotonic_ms())

    def holds_for(self, replicas: Collection[str], partition: Partition) -> bool:
        """Return whether a topic's list has this broker's replica of a partition."""
        if not replicas or not self.is_on:
            return False
        return (
            EVERY_REPLICA in replicas or f"{partition.name.partition}:{self._broker_id}" in replicas
        )

    def count(self, size_bytes: int) -> None:
        """Count copied bytes, if there is a limit."""
        if self.is_on:
            self._rate.add(size_bytes, self._clock.monotonic_ms())


class LeaderThrottle(Throttle):
    """The quota of data that this broker sends to followers."""

    def is_held_back(self, partition: Partition, follower_id: int) -> bool:
        """Return whether a follower gets nothing of a partition now."""
        if not self.is_throttled(partition):
            return False
        in_sync = partition.in_sync
        # Replicas that are about to join the ISR hold back the high watermark: they count, too.
        is_needed = in_sync is not None and (
            follower_id in in_sync.isr or follower_id in in_sync.awaited
        )
        return not is_needed and self.is_exceeded

    def count_sent(self, partition: Partition | None, size_bytes: int) -> None:
        """Count the bytes sent to a follower of a partition, if it is still here."""
        if size_bytes and partition is not None and self.is_throttled(partition):
            self.count(size_bytes)

    def is_throttled(self, partition: Partition) -> bool:
        """Return whether sent bytes of a partition count."""
        return self.holds_for(partition.log.config.leader_replication_throttled_replicas, partition)


class FollowerThrottle(Throttle):
    """The quota of data that this broker fetches from leaders."""

    def is_held_back(self, partition: Partition, *, is_caught_up: bool) -> bool:
        """Return whether a partition is not fetched now."""
        return not is_caught_up and self.is_throttled(partition) and self.is_exceeded

    def is_throttled(self, partition: Partition) -> bool:
        """Return whether fetched bytes of a partition count."""
        config = partition.log.config
        return self.holds_for(config.follower_replication_throttled_replicas, partition)


class Throttles:
    """All throttles of one broker."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        def rate() -> Rate:
            return Rate(
                config.replication_quota_window_num,
                config.replication_quota_window_size_seconds * 1000,
            )

        self.leader = LeaderThrottle(config.node_id, clock, rate())
        self.follower = FollowerThrottle(config.node_id, clock, rate())
        moves = Rate(
            config.alter_log_dirs_replication_quota_window_num,
            config.alter_log_dirs_replication_quota_window_size_seconds * 1000,
        )
        self.moves = Throttle(config.node_id, clock, moves)
        """The quota of all copies between log dirs."""
        self.apply(config)

    def apply(self, config: BrokerConfig) -> None:
        """Go by these rates from now on."""
        self.leader.bytes_per_second = config.leader_replication_throttled_rate
        self.follower.bytes_per_second = config.follower_replication_throttled_rate
        self.moves.bytes_per_second = config.replica_alter_log_dirs_io_max_bytes_per_second
