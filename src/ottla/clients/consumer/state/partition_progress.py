"""Progress in one partition: records finish in any order, commits leave no gap."""

from collections import deque
from typing import TYPE_CHECKING

from ottla.clients.consumer.state.subscription import NO_EPOCH, Position

if TYPE_CHECKING:
    from ottla.wire.records.consumer_record import ConsumerRecord


class PartitionProgress:
    """The records of one partition from the first unprocessed one, in offset order.

    Only the event loop's thread changes it. `first` and `oldest_at` are replaced as a whole, so
    that any thread may read them.
    """

    __slots__ = ("_done", "_epoch", "_taken", "first", "last_offset", "oldest_at")

    def __init__(self) -> None:
        self._taken: deque[tuple[int, int, float]] = deque()
        self._done: set[int] = set()
        self._epoch = NO_EPOCH
        self.first: Position | None = None
        """The first unprocessed record: the upper bound of commits."""
        self.oldest_at: float | None = None
        """When the oldest unprocessed record was taken, on the loop's clock."""
        self.last_offset = -1

    def take(self, record: "ConsumerRecord", now: float) -> None:
        """Add a record; it must follow all earlier ones."""
        assert record.offset > self.last_offset
        self._taken.append((record.offset, record.leader_epoch, now))
        self.last_offset = record.offset
        if self.first is None:
            self._look()

    def finish(self, offset: int) -> None:
        """Mark a record as processed, once; a contiguous processed prefix is dropped."""
        self._done.add(offset)
        if self.first is None or offset != self.first.offset:
            return
        while self._taken and self._taken[0][0] in self._done:
            done, self._epoch, _ = self._taken.popleft()
            self._done.remove(done)
        self._look()

    @property
    def unfinished_count(self) -> int:
        """The number of unprocessed records."""
        return len(self._taken) - len(self._done)

    @property
    def span(self) -> int:
        """The number of tracked records, from the first unprocessed one on."""
        return len(self._taken)

    def _look(self) -> None:
        if self._taken:
            offset, _, self.oldest_at = self._taken[0]
            self.first = Position(offset, self._epoch)
        else:
            self.first = self.oldest_at = None
