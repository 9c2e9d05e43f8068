"""Re-reads closed segments to find damage before a reader does.

A round scans the closed segments of all logs every `log.scrub.interval.ms`, in a thread, at most at
`log.scrub.io.max.bytes.per.second`. The first round begins after the interval, or an hour after the
start if the interval is longer: otherwise brokers with frequent restarts would never finish one.
Segments with damage reported by a read are checked within a second.

Damage is recorded in the log (`storage/files/damage.py`); `damaged_replicas.py` does the rest.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Self, TypeVar, TypeVarTuple

from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.maintenance.cleaner_throttle import CleanerThrottle, CleaningStoppedError
from ottla.environment.clock import Clock
from ottla.model.settings.broker_config import DEFAULT_CONFIG, BrokerConfig
from ottla.replication.partition import Partition
from ottla.storage.log.log import PartitionLog
from ottla.storage.log.offline_on_error import is_full
from ottla.storage.recovery.scrubbing import (
    PageCache,
    Target,
    closed_segments,
    fence_off,
    is_in,
    next_damage,
    suspect_segments,
)

FIRST_ROUND_MS_MAX: Final = 3_600_000
SUSPECTS_MS: Final = 500
"""The interval of checks of segments with damage reported by a read."""
CHECKED_AGAIN_MS: Final = 60_000
"""How soon a suspect segment is read again that was found sound, or fenced off."""
URGENT_BYTES_PER_SECOND: Final = 64 << 20
"""How fast suspect segments are read, and damaged ones rewritten."""
_THREADS: Final = 2
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubSettings:
    """The settings `log.scrub.…`."""

    interval_ms: int = DEFAULT_CONFIG.log_scrub_interval_ms
    bytes_per_second: int = DEFAULT_CONFIG.log_scrub_io_max_bytes_per_second

    @classmethod
    def from_config(cls, config: BrokerConfig) -> Self:
        """Return the settings of a configuration."""
        return cls(
            interval_ms=config.log_scrub_interval_ms,
            bytes_per_second=config.log_scrub_io_max_bytes_per_second,
        )


@dataclass(slots=True)
class DamageCounts:
    """The damage counters for metrics."""

    scrubbed_bytes: int = 0
    ranges: int = 0
    """How many ranges of offsets are damaged now."""
    found_ranges: int = 0
    repaired_ranges: int = 0


class ScrubThreads:
    """Threads that read and write whole segments, without getting in the way of other threads."""

    def __init__(self, clock: Clock) -> None:
        self.scrubbing = CleanerThrottle(clock)
        self.urgent = CleanerThrottle(clock)
        self.urgent.bytes_per_second = URGENT_BYTES_PER_SECOND
        self._threads: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[*_Ts], _T], *arguments: *_Ts) -> _T:
        """Run a function on a thread. CleaningStoppedError if its pace was stopped meanwhile."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ottla-scrub")
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def stop(self) -> None:
        """Make running work end soon."""
        self.scrubbing.stop()
        self.urgent.stop()

    def join(self) -> None:
        """Wait until nothing runs any more."""
        if self._threads is not None:
            self._threads.shutdown()


class LogScrubber:
    """Runs from `start` to `stop`, where the event loop runs.

    `check_suspects` is to be called every `SUSPECTS_MS`.
    """

    def __init__(
        self,
        partitions: HostedPartitions,
        cache: PageCache,
        clock: Clock,
        threads: ScrubThreads,
        settings: ScrubSettings,
    ) -> None:
        self.counts = DamageCounts()
        self._partitions = partitions
        self._cache = cache
        self._clock = clock
        self._threads = threads
        self._settings = settings
        self._changed = asyncio.Event()
        self._rounds_task: asyncio.Task[None] | None = None
        self._checked_ms: dict[str, int] = {}

    def start(self) -> None:
        """Begin; nothing is read before the first interval is over."""
        self._rounds_task = asyncio.get_running_loop().create_task(self._rounds())

    def apply(self, settings: ScrubSettings) -> None:
        """Go by these settings from now on; another interval begins."""
        if settings != self._settings:
            self._settings = settings
            self._changed.set()

    async def stop(self) -> None:
        """Stop the scrubber and wait for its running work."""
        self._threads.stop()
        if self._rounds_task is not None:
            self._rounds_task.cancel()
            await asyncio.wait([self._rounds_task])

    # -- the schedule ---------------------------------------------------------------------------

    async def _rounds(self) -> None:
        wait_ms = min(self._settings.interval_ms, FIRST_ROUND_MS_MAX)
        while True:
            if await self._is_changed_within(wait_ms):
                wait_ms = min(self._settings.interval_ms, FIRST_ROUND_MS_MAX)
                continue
            try:
                await self.scrub()
            except Exception:  # noqa: BLE001 - the next round tries again
                _log.exception("scrubbing failed")
            wait_ms = self._settings.interval_ms

    async def _is_changed_within(self, wait_ms: int) -> bool:
        """Wait for this time, or for other settings; return whether the settings changed."""
        self._changed.clear()
        try:
            timeout = None if wait_ms < 0 else wait_ms / 1000
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def scrub(self) -> None:
        """Read all closed segments once."""
        for partition in list(self._partitions):
            for target in closed_segments(partition.log):
                self._threads.scrubbing.bytes_per_second = self._settings.bytes_per_second
                await self._check(partition, partition.log, target, self._threads.scrubbing)

    async def check_suspects(self) -> None:
        """Read the segments in which a read has met damage."""
        now_ms = self._clock.monotonic_ms()
        recent = {p: ms for p, ms in self._checked_ms.items() if now_ms - ms < CHECKED_AGAIN_MS}
        self._checked_ms = recent
        for partition in list(self._partitions):
            if not partition.log.suspect_paths:
                continue
            for target in suspect_segments(partition.log):
                if target.path not in self._checked_ms:
                    self._checked_ms[target.path] = now_ms
                    await self._check(partition, partition.log, target, self._threads.urgent)

    # -- one segment ----------------------------------------------------------------------------

    async def _check(
        self, partition: Partition, log: PartitionLog, target: Target, pace: CleanerThrottle
    ) -> None:
        """Read a segment to its end, and fence off damaged ranges."""

        def wait(size_bytes: int) -> None:
            self.counts.scrubbed_bytes += size_bytes
            pace.wait(size_bytes)

        try:
            while True:
                damage = await self._threads.run(
                    next_damage, log.files.disk, self._cache, target, wait
                )
                if damage is None or not fence_off(log, target, damage):
                    return
                self.counts.found_ranges += 1
                target = target.behind(damage)
        except (FileNotFoundError, CleaningStoppedError):  # retention or the stop was faster
            return
        except OSError as error:
            if is_full(error):  # damage that cannot be noted is found again
                _log.warning("%s: damage is not noted: %s", partition.name, error)
                return
            _log.error("%s: %s cannot be read: %s", partition.name, target.path, error)
            if is_in(log, target.segment):
                log.take_offline(error)
