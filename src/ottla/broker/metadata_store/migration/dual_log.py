"""The log of the active controller during a migration: ZooKeeper has a decision before the log.

    decide --> apply --> [ committed in ZooKeeper ] --> propose --> [ committed by a majority ]

Brokers learn of a decision from the log, or from the feed, which gets it after the log. So nothing
is ever visible that ZooKeeper lacks, and the way back to ZooKeeper loses nothing. Any doubt ends
the office: the next office reads ZooKeeper, and completes the log.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.metadata_store.migration.migration_term import MigrationTerm
from ottla.broker.metadata_store.quorum.proposed_log import Batch, Changes, ProposedLog
from ottla.broker.metadata_store.zookeeper.znode_writes import Unit
from ottla.broker.quorum.metadata_replica import MetadataReplica
from ottla.environment.clock import Clock
from ottla.environment.zookeeper import ZooKeeperError
from ottla.machines.controller.machine import Controller
from ottla.metadata.log_replay import MetadataLogReplay
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.identifiers import Offset

_log = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    """A decision that is applied, and not proposed yet."""

    commits: list[Unit]
    batches: list[Batch]
    start_offset: Offset


class DualLog(ProposedLog):
    """Writes decisions to ZooKeeper, and then to the log, in their order."""

    def __init__(
        self,
        replica: MetadataReplica,
        replay: MetadataLogReplay,
        controller: Controller,
        clock: Clock,
        on_written: Callable[[int], None],
        term: MigrationTerm,
    ) -> None:
        super().__init__(replica, replay, controller, clock, on_written)
        self._term = term
        self._waiting: deque[_Waiting] = deque()
        self._writing: asyncio.Task[None] | None = None

    @property
    def proposed_offset(self) -> Offset:
        """The offset after the last decision that the replica has."""
        return self._waiting[0].start_offset if self._waiting else self.end_offset

    def is_committed(self, end_offset: Offset) -> bool:
        """Whether ZooKeeper and a majority have everything before an offset."""
        return end_offset <= self.proposed_offset and super().is_committed(end_offset)

    def catch_up(self) -> None:
        """Go on to the end of the log, if nothing waits; decisions that wait have their offsets."""
        if not self._waiting:
            super().catch_up()

    def write(self, records: tuple[MetadataRecord, ...]) -> Changes | None:
        """Apply a decision, and write it to ZooKeeper; propose it once ZooKeeper has it.

        ApiError POLICY_VIOLATION if it is too large for the log, or for a node in ZooKeeper.
        """
        if not records:
            return None
        batches = self.batches(records)
        commits = self._term.commits(self._controller.image, records)
        start_offset = self._replay.end_offset
        try:
            changes = self.apply(batches)
        except Exception:
            self.end()  # a part may be applied
            raise
        self._waiting.append(_Waiting(commits, batches, start_offset))
        if self._writing is None:
            if commits:
                self._writing = asyncio.ensure_future(self._write_all())
            else:
                self._propose_next()
        return changes

    def end(self) -> None:
        """Commit nothing more."""
        if not self.is_over:
            super().end()
            self._term.on_over()

    async def _write_all(self) -> None:
        try:
            while self._waiting and not self.is_over:
                for unit in self._waiting[0].commits:
                    await self._term.office.commit(unit)
                if not self.is_over:
                    self._propose_next()
        except (ApiError, ZooKeeperError) as error:
            _log.info("this controller writes nothing more to ZooKeeper: %r", error)
            self.end()
        finally:
            self._writing = None

    def _propose_next(self) -> None:
        """Propose the first decision that waits.

        The office ends if the replica has put a control batch into its place meanwhile, such as
        another set of voters.
        """
        decision = self._waiting[0]
        if self._replica.end_offset != decision.start_offset:
            _log.info("the log has grown to %d by itself", self._replica.end_offset)
            self.end()
            return
        try:
            self.propose(decision.batches)
        except Exception:
            self.end()
            raise
        self._waiting.popleft()
