"""How far one partition is done: records end in any order, offsets are committed without a gap."""

from collections import deque
from typing import TYPE_CHECKING

from ottla.clients.consumer.state.subscription import NO_EPOCH, Position

if TYPE_CHECKING:
    from ottla.wire.records.consumer_record import ConsumerRecord


class Progress:
    """The records of one partition from the first that is not done, in the order of their offsets.

    Only the event loop's thread changes it. `first` and `oldest_at` are replaced as a whole, and
    may be read from any.
    """

    __slots__ = ("_done", "_epoch", "_taken", "first", "last_offset", "oldest_at")

    def __init__(self) -> None:
        self._taken: deque[tuple[int, int, float]] = deque()
        self._done: set[int] = set()
        self._epoch = NO_EPOCH
        self.first: Position | None = None
        """The first record that is not done: nothing from here on may be committed."""
        self.oldest_at: float | None = None
        """When the oldest unprocessed record was taken, by the loop's time."""
        self.last_offset = -1

    def take(self, record: "ConsumerRecord", now: float) -> None:
        """Count a record that comes after all that were taken before."""
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
        """How many records were taken and are not done."""
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
