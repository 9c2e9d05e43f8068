"""Removes damaged replicas from the ISR, repairs them, and lets them follow again.

    found      fetches from the leader stop, or it would consider the replica in sync
    leaving    report to the controller until the replica has left the ISR, and others lead
    repairing  fetch the lost range from the leader (`replica_repair.py`)
    whole      follow again; the replica joins the ISR when it has caught up

A replica that is the only ISR member stays the leader: it has all other records, and none of them
is ever truncated. If the leader cannot help, because it lacks the same range, the replica follows
again as it is: it is no worse than its leader, and new records must be replicated.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from ottla.broker.controller.controller_client import LeaveIsr, ReplicaName
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.maintenance.cleaner_throttle import CleaningStoppedError
from ottla.broker.maintenance.log_scrubber import DamageCounts
from ottla.broker.replication.replica_fetchers import Hold, Holding
from ottla.broker.replication.replica_repair import LackingError
from ottla.environment.clock import Clock
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.records import DAMAGED_DIRECTORY, NO_LEADER
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId
from ottla.replication.partition import Partition
from ottla.storage.recovery.repair import RepairError

LOOK_MS: Final = 500
LEAVE_MS_MAX: Final = 10_000
"""How long clients are sent to look for another leader before they get the damage error."""
RETRY_MS: Final = 5_000
ATTEMPTS_MAX: Final = 6
"""How often a repair is tried before the replica follows again as it is."""
GIVE_UP_MS: Final = 60_000
"""How long a replica follows as it is before a repair that has failed is tried again."""
LACKING_MS: Final = 3_600_000
"""The same if the leader lacks the same range, unless another replica comes into sync."""
_log = logging.getLogger(__name__)

RepairReplica: TypeAlias = Callable[[Partition], Awaitable[None]]


@dataclass(slots=True)
class _Damaged:
    """A replica that has lost something."""

    found_ms: int
    ranges: int = 0
    told: str = ""
    """The damaged offsets that were logged already."""
    attempts: int = 0
    retry_ms: int = 0
    given_up_until_ms: int = 0
    lacking_with: frozenset[int] = frozenset()
    """Which replicas were in sync when it turned out that the leader lacks the same range."""


class DamagedReplicas:
    """Looks for them from `start` to `stop`. Belongs to one event loop."""

    def __init__(
        self,
        broker_id: BrokerId,
        image: Callable[[], ClusterImage],
        partitions: HostedPartitions,
        leave_isr: LeaveIsr,
        fetchers: Holding,
        repair: RepairReplica,
        clock: Clock,
        counts: DamageCounts,
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._partitions = partitions
        self._leave_isr = leave_isr
        self._fetchers = fetchers
        self._repair = repair
        self._clock = clock
        self._counts = counts
        self._known: dict[Partition, _Damaged] = {}
        self._repairing: asyncio.Task[None] | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """Repair nothing any more."""
        self._is_stopped = True
        if self._repairing is not None:
            self._repairing.cancel()

    async def look(self) -> None:
        """Check all replicas, and perform the next step for damaged ones."""
        found = {
            partition: ranges for partition in self._partitions if (ranges := _lost(partition))
        }
        for partition in self._known.keys() - found.keys():
            self._forget(partition)
        self._counts.ranges = sum(map(len, found.values()))
        leaving: list[ReplicaName] = []
        due: list[Partition] = []
        for partition, ranges in found.items():
            self._take_note(partition, ranges)
            self._decide(partition, leaving, due)
        is_free = self._repairing is None or self._repairing.done()
        if due and is_free and not self._is_stopped:
            self._repairing = asyncio.get_running_loop().create_task(self._repair_all(due))
        if leaving:
            try:
                await self._leave_isr(leaving, DAMAGED_DIRECTORY)
            except ApiError as error:
                _log.warning("damaged replicas are still in sync: %s", error)

    def _take_note(self, partition: Partition, ranges: list[tuple[int, int]]) -> None:
        known = self._known.get(partition)
        if known is None:
            known = self._known[partition] = _Damaged(self._clock.monotonic_ms())
        if len(ranges) > known.ranges:
            known.told = ", ".join(f"{start} to {end}" for start, end in ranges)
            _log.error("%s: offsets %s are damaged on this broker", partition.name, known.told)
            known.given_up_until_ms = 0
        known.ranges = len(ranges)

    def _forget(self, partition: Partition) -> None:
        """Let a replica follow again: it was repaired, or retention has taken the damage."""
        del self._known[partition]
        self._fetchers.release(partition, Hold.DAMAGE)

    def _decide(
        self, partition: Partition, leaving: list[ReplicaName], due: list[Partition]
    ) -> None:
        known, now_ms = self._known[partition], self._clock.monotonic_ms()
        row = partition.log.segments
        state = self._state_of(partition)
        if state is None or state.leader == NO_LEADER:
            return
        others = frozenset(state.isr) - {self._broker_id}
        is_leader = state.leader == self._broker_id
        # A replica with a failed repair may follow as it is, but leads only as the last resort.
        is_fit = others <= known.lacking_with if known.lacking_with else not is_leader
        if (is_fit and now_ms < known.given_up_until_ms) or (is_leader and not others):
            row.damage_code = ErrorCode.CORRUPT_MESSAGE
            return
        # A client that waits for another leader gets the damage error if there is none in time.
        is_late = partition.in_sync is not None and now_ms - known.found_ms > LEAVE_MS_MAX
        row.damage_code = ErrorCode.CORRUPT_MESSAGE if is_late else ErrorCode.KAFKA_STORAGE_ERROR
        self._fetchers.hold(partition, Hold.DAMAGE)
        if self._broker_id in state.isr:
            leaving.append((partition.topic_id, partition.name.partition))
        elif partition.leader_id == state.leader and now_ms >= known.retry_ms:
            due.append(partition)

    def _state_of(self, partition: Partition) -> PartitionImage | None:
        topic = self._image().topics.get(partition.name.topic)
        return None if topic is None else topic.partition(partition.name.partition)

    # -- repairing ------------------------------------------------------------------------------

    async def _repair_all(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            known = self._known.get(partition)
            if known is None:
                continue
            try:
                await self._repair(partition)
            except CleaningStoppedError:
                return
            except LackingError as error:
                self._give_up(partition, known, error, is_lacking=True)
            except (RepairError, ApiError, OSError) as error:
                self._put_off(partition, known, error)
            except Exception as error:  # noqa: BLE001 - the damaged segment is still there
                _log.exception("%s: repairing failed", partition.name)
                self._put_off(partition, known, error)
            else:
                self._counts.repaired_ranges += known.ranges
                _log.warning(
                    "%s: offsets %s are whole again, from broker %d",
                    partition.name,
                    known.told,
                    partition.leader_id,
                )
                self._known.pop(partition, None)
                self._fetchers.release(partition, Hold.DAMAGE)

    def _put_off(self, partition: Partition, known: _Damaged, error: Exception) -> None:
        if isinstance(error, RepairError) and error.suspect_path is not None:
            partition.log.suspect_paths.add(error.suspect_path)
        known.attempts += 1
        known.retry_ms = self._clock.monotonic_ms() + RETRY_MS
        if known.attempts >= ATTEMPTS_MAX:
            self._give_up(partition, known, error, is_lacking=False)
        else:
            _log.info("%s: not repaired yet: %s", partition.name, error)

    def _give_up(
        self, partition: Partition, known: _Damaged, error: Exception, *, is_lacking: bool
    ) -> None:
        _log.error("%s: stays damaged for now: %s", partition.name, error)
        known.attempts = 0
        wait_ms = LACKING_MS if is_lacking else GIVE_UP_MS
        known.given_up_until_ms = self._clock.monotonic_ms() + wait_ms
        state = self._state_of(partition)
        isr = frozenset(() if state is None else state.isr)
        known.lacking_with = known.lacking_with | isr if is_lacking else frozenset()
        self._fetchers.release(partition, Hold.DAMAGE)


def _lost(partition: Partition) -> list[tuple[int, int]]:
    """Return the lost ranges of offsets that another replica may have."""
    log = partition.log
    if not log.segments.may_be_damaged or log.is_offline:
        return []
    start_offset = log.log_start_offset
    return [
        (damage.offset, damage.end_offset)
        for segment in log.segments.damaged_from(start_offset)
        for damage in segment.damage
        if damage.is_lost_from(start_offset)
    ]
