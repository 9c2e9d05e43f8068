"""Hands over the replicas on a full disk, and takes part again when the disk has space.

    has room  --a write of a log is refused-->  full
    full      --`has_room`, after the wait-->   has room

A replica in a full log dir leaves the ISR if that stays large enough, and stops fetching until the
disk has space: while there are no writes, a fetching follower would be proposed for the ISR again.
Preferred leader election elects from the ISR, so it does not move leadership back. A replica that
cannot leave continues. As a follower it still fetches, so that its leader can advance the high
watermark. As a leader it serves fetches, refuses appends that do not fit with KAFKA_STORAGE_ERROR,
and appends again as soon as there is space, because every append is tried.

The wait doubles each time that a log dir fills up again soon after it had space. So two brokers
with full disks, on which retention frees a little space now and then, do not exchange leadership
forever.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

from ottla.broker.controller.controller_client import LeaveIsr, ReplicaName
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.replication.replica_fetchers import Hold, Holding
from ottla.concurrency.yield_budget import YieldBudget
from ottla.environment.clock import Clock
from ottla.machines.controller.lost_replicas import can_leave
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import FULL_DIRECTORY
from ottla.model.api_error import ApiError
from ottla.model.identifiers import BrokerId
from ottla.replication.partition import Partition
from ottla.storage.log_dirs.log_dir import LogDir
from ottla.storage.log_dirs.log_dirs import LogDirs, has_room

LOOK_MS: Final = 500
"""The interval of checks, for new full log dirs and for space in full ones."""
WAIT_MS_MIN: Final = 1_000
"""The minimum time that a log dir counts as full."""
WAIT_MS_MAX: Final = 60_000
RELAPSE_MS: Final = 300_000
"""A log dir that fills up again within this time after it had space waits twice as long."""
_FULL: Final = (
    "%s is full: until it has room, other in-sync replicas lead its partitions; where there are"
    " none, writes are refused"
)
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Fill:
    """The state of one log dir that is, or was, full."""

    is_full: bool
    changed_ms: int
    wait_ms: int


class FullLogDirs:
    """Finds full log dirs, and reports them. Belongs to one event loop."""

    def __init__(
        self,
        broker_id: BrokerId,
        image: Callable[[], ClusterImage],
        partitions: HostedPartitions,
        log_dirs: LogDirs,
        clock: Clock,
        threads: Executor,
        leave_isr: LeaveIsr,
        fetchers: Holding,
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._clock = clock
        self._threads = threads
        self._leave_isr = leave_isr
        self._fetchers = fetchers
        self._fill_by_folder: dict[LogDir, _Fill] = {}

    async def look(self) -> None:
        """Check which log dirs are full or have space again, and hand over their replicas."""
        for log_dir in self._refusing():
            self._note_full(log_dir)
        for log_dir, fill in list(self._fill_by_folder.items()):
            if not fill.is_full:
                continue
            if not log_dir.is_online:
                del self._fill_by_folder[log_dir]
            elif await self._has_room(log_dir, fill):
                self._note_room(log_dir, fill)
        await self._hand_over()

    def _refusing(self) -> list[LogDir]:
        """Return the log dirs of the logs that have found their disk full."""
        return [
            log_dir
            for log_dir in self._log_dirs.online
            if not all(hosted.log.has_room for hosted in log_dir.hosted.values())
        ]

    def _note_full(self, log_dir: LogDir) -> None:
        fill = self._fill_by_folder.get(log_dir)
        if fill is not None and fill.is_full:
            return
        now_ms = self._clock.monotonic_ms()
        is_relapse = fill is not None and now_ms - fill.changed_ms <= RELAPSE_MS
        wait_ms = min(2 * fill.wait_ms, WAIT_MS_MAX) if fill and is_relapse else WAIT_MS_MIN
        self._fill_by_folder[log_dir] = _Fill(is_full=True, changed_ms=now_ms, wait_ms=wait_ms)
        _log.error(_FULL, log_dir.path)

    async def _has_room(self, log_dir: LogDir, fill: _Fill) -> bool:
        if self._clock.monotonic_ms() - fill.changed_ms < fill.wait_ms:
            return False
        loop = asyncio.get_running_loop()
        try:
            disk = log_dir.open_files.disk
            return await loop.run_in_executor(self._threads, has_room, disk, log_dir.path)
        except OSError as error:
            log_dir.refuse(error)
            return False

    def _note_room(self, log_dir: LogDir, fill: _Fill) -> None:
        fill.is_full, fill.changed_ms = False, self._clock.monotonic_ms()
        _log.warning("%s has room again: its partitions are in use again", log_dir.path)
        for partition in self._in(log_dir):
            partition.log.has_room = True
            self._fetchers.release(partition, Hold.FULL_DISK)

    def _in(self, log_dir: LogDir) -> Iterator[Partition]:
        found = map(self._partitions.find, log_dir.hosted)
        return (partition for partition in found if partition is not None)

    def _leaves(self, partition: Partition, image: ClusterImage) -> bool:
        """Return whether to report a partition; follow its leader only while in the ISR."""
        topic = image.topics.get(partition.name.topic)
        state = None if topic is None else topic.partition(partition.name.partition)
        if state is None:
            return False
        is_in_sync = self._broker_id in state.isr
        leaves = can_leave(state, self._broker_id, partition.log.config.min_insync_replicas)
        if leaves or not is_in_sync:
            # Before the controller knows: a fetch on its way would bring it back into the ISR.
            self._fetchers.hold(partition, Hold.FULL_DISK)
        else:
            self._fetchers.release(partition, Hold.FULL_DISK)
        return leaves

    async def _hand_over(self) -> None:
        """Leave every ISR that stays large enough; again until the metadata shows it."""
        image = self._image()
        full = [log_dir for log_dir, fill in self._fill_by_folder.items() if fill.is_full]
        leaving: list[ReplicaName] = []
        budget = YieldBudget(self._clock)
        for partition in [one for log_dir in full for one in self._in(log_dir)]:
            partition.log.has_room = False
            if self._leaves(partition, image):
                leaving.append((partition.topic_id, partition.name.partition))
            await budget.yield_if_spent()
        if not leaving:
            return
        try:
            await self._leave_isr(leaving, FULL_DIRECTORY)
        except ApiError as error:
            _log.debug("partitions on full disks are not handed over yet: %s", error)
