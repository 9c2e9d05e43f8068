"""Pauses full partitions, so that polls continue without returning their records."""

from typing import TYPE_CHECKING

from ottla.clients.consumer.state.subscription import AssignedPartition, SubscriptionState
from ottla.clients.consumer.workers.lane_scheduler import LaneScheduler

if TYPE_CHECKING:
    from ottla.model.identifiers import TopicPartition


class Throttle:
    """Pauses and resumes by the number of unprocessed records. The application's pauses stay.

    A full partition is resumed once it is half empty, not for every record.
    """

    def __init__(self, state: SubscriptionState, scheduler: LaneScheduler) -> None:
        self._state = state
        self._scheduler = scheduler
        self._paused: set[TopicPartition] = set()
        self._is_closed = False
        self._is_full = False

    def close(self) -> None:
        """Stop: the next update pauses all partitions."""
        self._is_closed = True

    def update(self) -> int:
        """Pause and resume partitions; return how many records may be taken now."""
        self._is_full = self._stays_full()
        with self._state.lock:
            assigned = self._state.assigned
            self._paused = {name for name in self._paused if self._is_ours(assigned.get(name))}
            resumed = [name for name in self._paused if self._may_resume(assigned[name])]
            if resumed:
                self._paused.difference_update(resumed)
                self._state.resume(resumed)
            return self._pause_full()

    def is_due(self) -> bool:
        """Whether an update would resume something."""
        if not self._paused or self._is_closed or self._stays_full():
            return False
        rows = (self._state.assigned.get(name) for name in self._paused)
        return any(row is not None and self._has_room(row) for row in rows)

    def reopen(self) -> None:
        """Resume all partitions that were paused here."""
        with self._state.lock:
            rows = self._state.assigned
            self._state.resume(name for name in self._paused if self._is_ours(rows.get(name)))
        self._paused.clear()

    def _pause_full(self) -> int:
        """Pause partitions without room; return the least room among the others."""
        count = self._scheduler.room
        is_any = False
        for name, row in self._state.assigned.items():
            if row.is_paused:
                continue
            room = self._scheduler.room_in(row.progress, len(self._state.assigned))
            if self._is_closed or self._is_full or not room:
                self._state.pause([name])
                self._paused.add(name)
            else:
                count = min(count, room)
                is_any = True
        return count if is_any else 0

    def _stays_full(self) -> bool:
        if not self._scheduler.room:
            return True
        return self._is_full and self._scheduler.room < self._scheduler.in_progress

    @staticmethod
    def _is_ours(row: AssignedPartition | None) -> bool:
        """Whether it is still paused; a partition that was reassigned is not."""
        return row is not None and row.is_paused

    def _may_resume(self, row: AssignedPartition) -> bool:
        return not (self._is_closed or self._is_full) and self._has_room(row)

    def _has_room(self, row: AssignedPartition) -> bool:
        partitions = len(self._state.assigned)
        share = self._scheduler.room_in(None, partitions)
        return self._scheduler.room_in(row.progress, partitions) >= (share + 1) // 2
