"""Planned failures of a simulated disk, by operation.

Every operation that changes the disk has a number, its index in `DiskFaults.operations`. So a test
runs its scenario once to count them, and then once per operation: with a crash, or a failure, right
there. Reads have no number and do not crash, but can be made to fail.
"""

import errno
import os
from collections.abc import Callable
from enum import StrEnum
from typing import Literal, NamedTuple

CrashMoment = Literal["before", "during", "after"]


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
