"""The files and directories of a simulated disk, with their cached and durable states.

Each node has a cached state, which all processes see, a durable one, which remains after a power
cut, and the list of changes between them. Of that list a power cut keeps:

* of a **directory** a prefix of the changes. A rename is one change.
* of a **file** one of four things: nothing; everything; the first few operations, the next up
  to any byte; or a mixture, where each sector, and the size, has stopped at a moment of its own
  between the last sync and now. That leaves holes of zeros in grown areas, and old sectors between
  new ones. A sector is written whole, so a write harms no synced neighbour.

In the mixture a truncation is a change of the filesystem's own, which goes with the size: kept or
lost as a whole. Data written after a lost truncation can be on disk only in the pages that it left
the file, because the filesystem had not allocated others yet; behind them the old bytes are back.

Planned failures are by operation: every operation that changes the disk has a number, its index in
`DiskFaults.operations`. So a test runs its scenario once to count them, and then once per
operation: with a crash, or a failure, right there. Reads have no number and do not crash, but can
be made to fail.
"""

import errno
import os
from collections.abc import Callable
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol

CrashMoment = Literal["before", "during", "after"]

SECTOR_BYTES = 512
PAGE_BYTES = 4096

Keep = Literal["lose_all", "keep_all", "random"]


class OperationKind(StrEnum):
    """The operations of a disk. All but READ are numbered."""

    CREATE = "create"
    MAKE_DIRECTORY = "make_directory"
    READ = "read"
    REMOVE = "remove"
    REMOVE_DIRECTORY = "remove_directory"
    RENAME = "rename"
    SYNC = "sync"
    SYNC_DIRECTORY = "sync_directory"
    TRUNCATE = "truncate"
    WRITE = "write"


class Operation(NamedTuple):
    """An operation on the file or directory of this path; for a rename, the old path."""

    kind: OperationKind
    path: str


class SimulatedCrash(BaseException):
    """The machine has lost power in the middle of an operation.

    Not an `Exception`: error handlers in the code under test must not catch it.
    """


class _Rule(NamedTuple):
    error: int
    kind: OperationKind | None
    under: str

    def applies_to(self, kind: OperationKind, path: str) -> bool:
        is_under = f"{path}/".startswith(f"{self.under.rstrip('/')}/")
        return is_under and self.kind in {None, kind}


class DiskFaults:
    """The record of a disk's operations, and the plan of failures.

    `operations` holds every attempt, including failed ones, through all crashes.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._error_by_number: dict[int, int] = {}
        self._crash_by_number: dict[int, CrashMoment] = {}
        self._rules: list[_Rule] = []
        self._is_down = False

    def fail_at(self, number: int, error: int = errno.EIO) -> None:
        """Let the operation of this number fail with this errno."""
        self._error_by_number[number] = error

    def fail_on(
        self, kind: OperationKind | None = None, under: str = "/", error: int = errno.EIO
    ) -> None:
        """Let everything (or all of a kind) done to a path, or below it, fail until `heal`."""
        self._rules.append(_Rule(error, kind, under))

    def crash_at(self, number: int, moment: CrashMoment = "before") -> None:
        """Let the machine go down at the operation of this number.

        During a write some of it is done; everything else is done or not, so that during it is
        as before it.
        """
        self._crash_by_number[number] = moment

    def heal(self) -> None:
        """Forget every failure and crash that was planned."""
        self._error_by_number.clear()
        self._crash_by_number.clear()
        self._rules.clear()

    def restart(self) -> None:
        """Let the machine run again after a crash."""
        self._is_down = False

    def read(self, path: str) -> None:
        """Raise the planned failure of reading this path."""
        self.check_up()
        self._check_rules(OperationKind.READ, path)

    def perform(
        self,
        kind: OperationKind,
        path: str,
        act: Callable[[], None],
        fail: Callable[[], None] | None = None,
    ) -> None:
        """Run the operation, or its planned failure; `fail` leaves the traces of a failure."""
        self.check_up()
        number = len(self.operations)
        self.operations.append(Operation(kind, path))
        try:
            self._check_number(number, path)
            self._check_rules(kind, path)
        except OSError:
            if fail is not None:
                fail()
            raise
        moment = self._crash_by_number.get(number)
        if moment == "during" and kind is OperationKind.WRITE and fail is not None:
            fail()
        if moment in {"before", "during"}:
            self._go_down()
        try:
            act()
        finally:
            if moment == "after":
                self._go_down()

    def check_up(self) -> None:
        """Raise `SimulatedCrash` while the machine is down.

        So the `finally` blocks of dying code have no effect.
        """
        if self._is_down:
            raise SimulatedCrash(f"at operation {len(self.operations) - 1}: {self.operations[-1]}")

    def _go_down(self) -> None:
        self._is_down = True
        self.check_up()

    def _check_number(self, number: int, path: str) -> None:
        if number in self._error_by_number:
            raise os_error(self._error_by_number[number], path)

    def _check_rules(self, kind: OperationKind, path: str) -> None:
        for rule in self._rules:
            if rule.applies_to(kind, path):
                raise os_error(rule.error, path)


def os_error(error: int, path: str) -> OSError:
    """Return the exception that the kernel would raise: the subclass of this errno."""
    return OSError(error, os.strerror(error), path)


class Dice(Protocol):
    """Where chance comes from; `random.Random` is one."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 up to but not including `stop`."""
        ...


class _Write(NamedTuple):
    position: int
    content: bytes

    @property
    def end(self) -> int:
        return self.position + len(self.content)


class _Truncation(NamedTuple):
    size_bytes: int


_Change = _Write | _Truncation


class FileNode:
    """The content of a file."""

    def __init__(self, now_ms: int = 0) -> None:
        self.content = bytearray()
        self.modified_ms = now_ms
        self._durable = bytearray()
        self._dirty: list[_Change] = []

    def write(self, position: int, content: bytes) -> None:
        """Write to the cache; nothing at all is not even a hole."""
        if content:
            self._change(_Write(position, content))

    def truncate(self, size_bytes: int) -> None:
        """Cut or extend in the cache."""
        self._change(_Truncation(size_bytes))

    def _change(self, change: _Change) -> None:
        _apply(change, self.content)
        self._dirty.append(change)

    def sync(self) -> None:
        """Make everything durable that is still known to be dirty."""
        for change in self._dirty:
            _apply(change, self._durable)
        self._dirty.clear()

    def forget_dirty(self) -> None:
        """Mark dirty data clean, as the kernel does after a failed write-back."""
        self._dirty.clear()

    def corrupt(self, position: int, content: bytes) -> None:
        """Replace bytes silently, in the cache and on disk."""
        end = position + len(content)
        assert end <= len(self.content), f"{end} is past the end"
        self.content[position:end] = content
        on_disk = content[: max(0, len(self._durable) - position)]
        self._durable[position : position + len(on_disk)] = on_disk
        if self._dirty:
            self._dirty.append(_Write(position, content))

    def cut_power(self, keep: Keep, dice: Dice | None) -> None:
        """Take the state after a power cut."""
        if keep == "keep_all":
            self.sync()
        elif keep == "random" and self._dirty:
            assert dice is not None
            self._keep_some(dice)
        self._dirty.clear()
        self.content = bytearray(self._durable)

    def _keep_some(self, dice: Dice) -> None:
        match dice.randrange(4):
            case 0:
                self._dirty.clear()
            case 1:
                self.sync()
            case 2:
                self._keep_prefix(dice)
            case _:
                _Mixture(self._dirty, self._durable, dice).mix()

    def _keep_prefix(self, dice: Dice) -> None:
        moment = dice.randrange(len(self._dirty))
        for change in self._dirty[:moment]:
            _apply(change, self._durable)
        last = self._dirty[moment]
        if isinstance(last, _Write):
            torn = last.content[: dice.randrange(len(last.content) + 1)]
            _overwrite(self._durable, last.position, torn)


class _Mixture:
    """Decides, sector by sector, which changes have reached a file on disk."""

    def __init__(self, changes: list[_Change], durable: bytearray, dice: Dice) -> None:
        self._changes = changes
        self._durable = durable
        self._dice = dice
        self._moment_by_sector: dict[int, int] = {}
        self._size_bytes = len(durable)
        self._in_place_end: int | None = None  # set by the first truncation that is lost

    def mix(self) -> None:
        """Compute the durable bytes after the power cut."""
        size_moment = self._dice.randrange(len(self._changes) + 1)
        for number, change in enumerate(self._changes):
            if isinstance(change, _Write):
                self._mix_sectors(number, change)
                if number < size_moment:
                    self._size_bytes = max(self._size_bytes, change.end)
            elif number < size_moment:
                _apply(change, self._durable)
                self._size_bytes = change.size_bytes
            else:
                self._lose_truncation(number, change)
        _apply(_Truncation(self._size_bytes), self._durable)

    def _lose_truncation(self, number: int, change: _Truncation) -> None:
        page_end = -(-change.size_bytes // PAGE_BYTES) * PAGE_BYTES
        end = self._in_place_end
        self._in_place_end = page_end if end is None else min(page_end, end)
        # The rest of the page was zeroed in the cache, and may have been written like that.
        self._mix_sectors(number, _Write(change.size_bytes, bytes(page_end - change.size_bytes)))

    def _mix_sectors(self, number: int, write: _Write) -> None:
        position = write.position
        end = write.end if self._in_place_end is None else min(write.end, self._in_place_end)
        while position < end:
            sector = position // SECTOR_BYTES
            piece_end = min(end, (sector + 1) * SECTOR_BYTES)
            if number < self._moment_of(sector):
                piece = write.content[position - write.position : piece_end - write.position]
                _overwrite(self._durable, position, piece)
            position = piece_end

    def _moment_of(self, sector: int) -> int:
        if sector not in self._moment_by_sector:
            self._moment_by_sector[sector] = self._dice.randrange(len(self._changes) + 1)
        return self._moment_by_sector[sector]


class DirectoryNode:
    """The names in a directory."""

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self._durable: dict[str, Node] = {}
        self._pending: list[dict[str, Node | None]] = []

    def change(self, entries: dict[str, "Node | None"]) -> None:
        """Set or remove the nodes of these names, atomically."""
        _rename(entries, self.entries)
        self._pending.append(entries)

    def sync(self) -> None:
        """Make the names durable, as far as they are still known not to be."""
        for entries in self._pending:
            _rename(entries, self._durable)
        self._pending.clear()

    def forget_dirty(self) -> None:
        """Take the names for durable that are not."""
        self._pending.clear()

    def cut_power(self, keep: Keep, dice: Dice | None) -> None:
        """Take the state after a power cut, together with all reachable nodes."""
        if keep == "lose_all":
            self._pending.clear()
        elif keep == "random":
            assert dice is not None
            del self._pending[dice.randrange(len(self._pending) + 1) :]
        self.sync()
        self.entries = dict(self._durable)
        for node in self.entries.values():
            node.cut_power(keep, dice)


Node = FileNode | DirectoryNode


def _apply(change: _Change, content: bytearray) -> None:
    if isinstance(change, _Write):
        _overwrite(content, change.position, change.content)
    else:
        del content[change.size_bytes :]
        content.extend(bytes(change.size_bytes - len(content)))


def _overwrite(content: bytearray, position: int, piece: bytes) -> None:
    if piece:
        content.extend(bytes(max(0, position - len(content))))
        content[position : position + len(piece)] = piece


def _rename(change: dict[str, Node | None], entries: dict[str, Node]) -> None:
    for name, node in change.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node
