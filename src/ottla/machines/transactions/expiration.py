"""Transactions that exceed their timeout, and transactional ids that are unused.

A transaction that is open longer than its timeout is aborted, and its producer fenced, unless it is
prepared for an external coordinator. An id without a transaction is removed after
`transactional.id.expiration.ms`.

A transaction ages by the monotonic clock, so that a change of the wall clock does no harm. For
transactions loaded from the log the wall clock gives the age, and the monotonic clock continues.
"""

from itertools import islice
from typing import Final

from ottla.machines.moment import Moment
from ottla.machines.transactions.calls import Records
from ottla.machines.transactions.end_txn import Ending
from ottla.machines.transactions.records import TransactionRecord, tombstone
from ottla.machines.transactions.settings import TransactionSettings
from ottla.machines.transactions.transaction import IDLE, NO_TIMEOUT_MS, Transaction
from ottla.machines.transactions.transaction_store import Roster

ABORTS_MAX: Final = 200
"""How many transactions are aborted in one go."""
LOOKS_MAX: Final = 5_000
"""The number of transactional ids checked in one run."""
TOMBSTONES_MAX: Final = 200
"""How many transactional ids are forgotten in one go."""
_SOON_MS: Final = 1
"""When to go on if there is more to do than in one go."""


class Ageing:
    """Decides the expiration of transactions and ids. Begins with `start`."""

    def __init__(self, settings: TransactionSettings, roster: Roster, ending: Ending) -> None:
        self._settings = settings
        self._roster = roster
        self._ending = ending
        self._unseen: list[str] = []
        self._abort_at_ms: int | None = None
        self._forget_at_ms: int | None = None

    def start(self, now: Moment) -> None:
        """Begin to watch time."""
        self._roster.start(now)
        settings = self._settings
        abort_ms = settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        forget_ms = settings.transaction_remove_expired_transaction_cleanup_interval_ms
        self._abort_at_ms = now.monotonic_ms + abort_ms
        self._forget_at_ms = now.monotonic_ms + forget_ms

    def next_ms(self) -> int | None:
        """Return when there is something to look at, on the monotonic clock."""
        if self._abort_at_ms is None or self._forget_at_ms is None:
            return None
        return min(self._abort_at_ms, self._forget_at_ms)

    def look(self, now: Moment) -> Records:
        """Abort expired transactions and remove expired ids; in portions, if there are many."""
        if self._abort_at_ms is not None and self._abort_at_ms <= now.monotonic_ms:
            return self._abort(now)
        if self._forget_at_ms is not None and self._forget_at_ms <= now.monotonic_ms:
            return self._forget(now)
        return ()

    def _abort(self, now: Moment) -> Records:
        late = (
            one
            for one, began_ms in self._roster.ongoing()
            if _is_late(one, now.monotonic_ms - began_ms)
        )
        aborted = list(islice(late, ABORTS_MAX))
        interval_ms = self._settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        delay_ms = _SOON_MS if len(aborted) == ABORTS_MAX else interval_ms
        self._abort_at_ms = now.monotonic_ms + delay_ms
        return tuple(record for one in aborted for record in self._ending.fence(one, now))

    def _forget(self, now: Moment) -> Records:
        if not self._unseen:
            self._unseen = self._roster.transactional_ids()
        records: list[TransactionRecord] = []
        for _ in range(min(LOOKS_MAX, len(self._unseen))):
            found = self._roster.get(self._unseen.pop())
            if found is not None and self._is_unused(found, now.wall_ms):
                records.append(tombstone(found.transactional_id))
                if len(records) == TOMBSTONES_MAX:
                    break
        interval_ms = self._settings.transaction_remove_expired_transaction_cleanup_interval_ms
        self._forget_at_ms = now.monotonic_ms + (_SOON_MS if self._unseen else interval_ms)
        return tuple(records)

    def _is_unused(self, found: Transaction, now_ms: int) -> bool:
        is_old = now_ms - found.update_ms >= self._settings.transactional_id_expiration_ms
        return is_old and found.state in IDLE


def _is_late(found: Transaction, age_ms: int) -> bool:
    return found.timeout_ms != NO_TIMEOUT_MS and age_ms > found.timeout_ms
