"""The start offset of each leader epoch: Kafka's `leader-epoch-checkpoint` file.

Replicas compare these to find where their logs diverge (KIP-101, KIP-279). Epochs and offsets both
increase strictly; an epoch ends where the next begins, the last epoch at the end of the log.
"""

from bisect import bisect_left, bisect_right
from itertools import pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from ottla.environment.disk import Disk
from ottla.model.identifiers import NO_OFFSET, LeaderEpoch, Offset
from ottla.storage.files.checkpoints import (
    INT32_MAX,
    INT64_MAX,
    encode_table,
    read_table,
    write_table,
)

LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
NO_EPOCH: Final = LeaderEpoch(-1)
ANY_EPOCH = (1 << 31) - 1
"""None is later."""

_EPOCH = itemgetter(0)
_START_OFFSET = itemgetter(1)


class EpochStart(NamedTuple):
    """A leader epoch and the first offset that was written in it."""

    epoch: LeaderEpoch
    start_offset: Offset


class EpochEnd(NamedTuple):
    """A leader epoch and the offset after the last that was written in it."""

    epoch: LeaderEpoch
    end_offset: Offset


UNKNOWN_END = EpochEnd(NO_EPOCH, NO_OFFSET)


class LeaderEpochs:
    """The epochs of one partition's log.

    A change is atomic, and durable when the method returns; if the write fails, the state in memory
    is unchanged. A call without effect does not write. Exceptions are `note`,
    `truncate_from_start`, `relearn` and `forget_from`: the recovery of a log can repeat them, so
    their changes stay `unwritten` until the next write. When the directory is renamed, assign the
    new `path`.
    """

    __slots__ = ("_disk", "_entries", "_is_written", "path")

    def __init__(self, disk: Disk, path: str, entries: tuple[EpochStart, ...] = ()) -> None:
        self._disk = disk
        self._entries = entries
        self._is_written = True
        self.path = path

    @classmethod
    def load(cls, disk: Disk, path: str) -> "LeaderEpochs":
        """Read the file; a missing one holds no epochs, a damaged one CorruptCheckpointError."""
        entries: list[EpochStart] = []
        for line in read_table(disk, path, words_per_line=2):
            entry = EpochStart(
                LeaderEpoch(line.number(0, INT32_MAX)), Offset(line.number(1, INT64_MAX))
            )
            if entries and not (
                entry.epoch > entries[-1].epoch and entry.start_offset > entries[-1].start_offset
            ):
                raise line.error(f"does not come after {entries[-1]}")
            entries.append(entry)
        return cls(disk, path, tuple(entries))

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        """All epochs, in order."""
        return self._entries

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        """The last epoch that has something in the log."""
        return self._entries[-1].epoch if self._entries else None

    def epoch_for(self, offset: Offset) -> LeaderEpoch | None:
        """Return the epoch in which this offset was written, or would be; None if too long ago."""
        count = bisect_right(self._entries, offset, key=_START_OFFSET)
        return self._entries[count - 1].epoch if count else None

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: Offset) -> EpochEnd:
        """Return the largest epoch up to this one and its end, for a follower.

        For an epoch before the first known epoch, its data is gone, and the end is the start of the
        first known epoch. Without epochs, and for an epoch after the last: UNKNOWN_END.
        """
        if epoch < 0 or not self._entries or epoch > self._entries[-1].epoch:
            return UNKNOWN_END
        count = bisect_right(self._entries, epoch, key=_EPOCH)
        if count == len(self._entries):
            return EpochEnd(epoch, log_end_offset)
        found = self._entries[count - 1].epoch if count else epoch
        return EpochEnd(found, self._entries[count].start_offset)

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Record that the epoch begins at this offset, unless it is the latest and began before.

        Contradicting entries, of later epochs or with a start that is not earlier, were written by
        a deposed leader, and are removed.
        """
        assert 0 <= epoch <= INT32_MAX, f"epoch {epoch}"
        assert 0 <= start_offset <= INT64_MAX, f"offset {start_offset}"
        self._replace(self._with(epoch, start_offset))

    def _with(self, epoch: LeaderEpoch, start_offset: Offset) -> tuple[EpochStart, ...]:
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return entries
        count = min(
            bisect_left(entries, epoch, key=_EPOCH),
            bisect_left(entries, start_offset, key=_START_OFFSET),
        )
        return (*entries[:count], EpochStart(epoch, start_offset))

    def note(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Assign an epoch that need not be durable before its first batch is.

        Contradicting entries are removed at once.
        """
        entries = self._entries
        if entries and not (epoch > entries[-1].epoch and start_offset > entries[-1].start_offset):
            self.assign(epoch, start_offset)
        else:
            self._entries = (*entries, EpochStart(epoch, start_offset))
            self._is_written = False

    def restore(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Add the start of an epoch that was lost, or correct a start that was too late.

        An entry that does not fit between the known ones is ignored.
        """
        if epoch < 0 or self.epoch_for(start_offset) == epoch:
            return
        others = [entry for entry in self._entries if entry.epoch != epoch]
        entries = sorted([*others, EpochStart(epoch, start_offset)])
        if all(a.start_offset < b.start_offset for a, b in pairwise(entries)):
            self._replace(tuple(entries))

    @property
    def unwritten(self) -> bytes | None:
        """The new content of the file, if it differs; call `written` when it is written."""
        return None if self._is_written else encode_table(_lines(self._entries))

    def written(self, content: bytes | None, *, is_certain: bool) -> None:
        """Mark the content clean only if the entries did not change during the write."""
        if content is not None:
            self._is_written = is_certain and content == encode_table(_lines(self._entries))

    def truncate_from_end(self, end_offset: Offset) -> None:
        """Forget the epochs that begin at this offset or later: the log ends here now."""
        assert end_offset >= 0, f"offset {end_offset}"
        self._replace(self._before(end_offset))

    def _before(self, end_offset: Offset) -> tuple[EpochStart, ...]:
        return self._entries[: bisect_left(self._entries, end_offset, key=_START_OFFSET)]

    def forget_from(self, end_offset: Offset) -> None:
        """Truncate from the end, in memory: every opening after an unclean stop does so again."""
        self._put_off(self._before(end_offset))

    def relearn(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Assign in memory an epoch that the recovery of a log has read from its batches.

        The file is behind then, but never wrong below the recovery point: a flush writes it before
        that point moves, and the next recovery begins with the segment of the point.
        """
        self._put_off(self._with(epoch, start_offset))

    def _put_off(self, entries: tuple[EpochStart, ...]) -> None:
        if entries != self._entries:
            self._entries = entries
            self._is_written = False

    def truncate_from_start(self, start_offset: Offset) -> None:
        """Drop the epochs that end before this offset: the log begins here now.

        The epoch of this offset begins here, too, from now on.
        """
        count = bisect_right(self._entries, start_offset, key=_START_OFFSET)
        if count and (count > 1 or self._entries[0].start_offset < start_offset):
            first = EpochStart(self._entries[count - 1].epoch, start_offset)
            self._entries = (first, *self._entries[count:])
            self._is_written = False

    def clear(self) -> None:
        """Forget all epochs, and write that even if there are none: the file may be damaged."""
        self._write(())

    def write(self) -> None:
        """Write all epochs, even if there are none or they are written: the file may be damaged."""
        self._write(self._entries)

    def _replace(self, entries: tuple[EpochStart, ...]) -> None:
        if entries != self._entries:
            self._write(entries)

    def _write(self, entries: tuple[EpochStart, ...]) -> None:
        write_table(self._disk, self.path, _lines(entries))
        self._entries = entries
        self._is_written = True


def _lines(entries: tuple[EpochStart, ...]) -> list[str]:
    return [f"{epoch} {start_offset}" for epoch, start_offset in entries]
