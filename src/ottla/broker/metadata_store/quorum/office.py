"""The office of the active controller: from the first decision in an epoch to the end of it.

    decide --> apply --> propose --> [ committed by a majority ] --> publish --> respond
                 |
     the next decision is based on it at once

An office begins when the replica leads and everything before it in the log is committed and
applied. It never resumes: everything that is not committed at its end is dropped, and the callers
that wait get NOT_CONTROLLER. Their decisions may still be committed by the next leader.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ottla.broker.decision_runtime import DecisionRuntime, Outcome
from ottla.broker.metadata_store.migration.dual_log import DualLog
from ottla.broker.metadata_store.migration.migration_term import MigrationTerm
from ottla.broker.metadata_store.quorum.proposed_log import Changes, ProposedLog
from ottla.broker.quorum.metadata_replica import MetadataReplica
from ottla.environment.clock import Clock
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.log_replay import MetadataLogReplay
from ottla.metadata.metadata_version import METADATA_VERSION_FEATURE
from ottla.metadata.records import (
    AbortTransactionRecord,
    MetadataRecord,
    NoOpRecord,
)
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import LeaderEpoch, Offset

T = TypeVar("T")


class Office:
    """Decides in one epoch. Belongs to one event loop."""

    def __init__(
        self,
        epoch: LeaderEpoch,
        replica: MetadataReplica,
        replay: MetadataLogReplay,
        controller: Controller,
        clock: Clock,
        publish: Callable[[Changes], Outcome | None],
        on_written: Callable[[int], None],
        term: MigrationTerm | None = None,
    ) -> None:
        """Decide on a replay that is at the end of the log; report the size of each batch.

        During a migration the office depends on a term in ZooKeeper, and may end by itself.
        """
        self.epoch = epoch
        self._clock = clock
        self._replay = replay
        self._controller = controller
        self._term = term
        self._log = (
            ProposedLog(replica, replay, controller, clock, on_written)
            if term is None
            else DualLog(replica, replay, controller, clock, on_written, term)
        )
        self._runtime: DecisionRuntime[Controller, MetadataRecord, Changes] = DecisionRuntime(
            controller, self._log, publish
        )

    @property
    def is_over(self) -> bool:
        """Whether this controller decides nothing more in this epoch."""
        return self._log.is_over

    @property
    def proposed_offset(self) -> Offset:
        """The offset after the last decision that is in the log."""
        return self._log.proposed_offset

    def begin(self, bootstrap: Callable[[], Sequence[MetadataRecord]]) -> None:
        """Complete the work of earlier offices, or write the first records of the cluster.

        A metadata transaction without an end is the decision of an earlier controller, which has
        not answered it. NOT_CONTROLLER if the office is over already.
        """
        self._log.catch_up()
        if self._replay.transaction_offset is not None:
            aborted = AbortTransactionRecord(reason="the active controller has changed")
            self._decide(lambda _: Decision((aborted,), None))
        if self._term is not None:
            copied = self._term.copied(self._controller)
            self._decide(lambda _: Decision(copied, None))
        elif METADATA_VERSION_FEATURE not in self._controller.image.level_by_feature:
            records = bootstrap()
            self._decide(lambda controller: controller.bootstrap(records))
        self._controller.take_office(self._clock.monotonic_ms())

    def write_no_op(self) -> None:
        """Append a record without effect: every node sees that the quorum can commit."""
        self._decide(lambda _: Decision((NoOpRecord(),), None))

    async def execute(self, decide: Callable[[Controller], Decision[MetadataRecord, T]]) -> T:
        """Decide, commit and publish; return the response of the decision.

        ApiErrors of `decide` come through. NOT_CONTROLLER also means that the outcome is unknown.
        """
        response = self._decide(decide)
        await self._runtime.published()
        return response

    def _decide(self, decide: Callable[[Controller], Decision[MetadataRecord, T]]) -> T:
        if self.is_over:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this controller is not active")
        self._log.catch_up()
        return self._runtime.decide(decide)

    def on_committed(self) -> None:
        """Take note of a higher high watermark."""
        self._log.look_again()

    def end(self) -> None:
        """Decide and publish nothing more; the callers that wait get NOT_CONTROLLER."""
        self._log.end()
