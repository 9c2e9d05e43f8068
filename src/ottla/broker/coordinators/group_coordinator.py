"""Runs the groups: each belongs to one partition of `__consumer_offsets`, and to its machine.

How machines are run is in `coordinator_runtime.py`. Requests that wait for other members
(JoinGroup, SyncGroup) wait for a notification of the group and ask again.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Final, TypeVar

from ottla.broker.coordinators.consumer_offsets_topic import ConsumerOffsetsTopic
from ottla.broker.coordinators.coordinator_log import (
    NO_TRANSACTION,
    CoordinatorLog,
    OffsetsTransaction,
)
from ottla.broker.coordinators.coordinator_runtime import (
    CoordinatorRuntime,
    CoordinatorWorld,
    PartitionDecisions,
)
from ottla.broker.decision_runtime import DecisionRuntime
from ottla.concurrency.yield_budget import YieldBudget
from ottla.machines.decision import Decision
from ottla.machines.groups.group_memory import GroupMemory
from ottla.machines.groups.group_records import GroupRecord
from ottla.machines.groups.machine import GroupMachine
from ottla.machines.groups.request_types import NotYet
from ottla.machines.groups.settings import GroupSettings
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset, ProducerId, TopicPartition
from ottla.replication.partition import Partition
from ottla.wire.coordinator_records.classic_group import GroupMetadataKey, GroupMetadataValue

T = TypeVar("T")
_WAIT_MS: Final = 600_000
_log = logging.getLogger(__name__)


class _GroupDecisions(PartitionDecisions[GroupRecord, None]):
    """The decisions of one partition's groups, perhaps in a transaction."""

    def __init__(
        self,
        world: CoordinatorWorld,
        partition: Partition,
        commit_ms_max: int,
        log: CoordinatorLog,
        machine: GroupMachine,
        transaction: OffsetsTransaction = NO_TRANSACTION,
    ) -> None:
        super().__init__(world, partition, commit_ms_max)
        self._log = log
        self._machine = machine
        self._transaction = transaction

    def _take(self, records: tuple[GroupRecord, ...]) -> None:
        self._log.append(self.partition, records, self._transaction)
        for record in records:
            self._machine.replay(record.key, record.value, self._transaction.producer_id)
        _log_rebalances(records)


class GroupCoordinator(CoordinatorRuntime[GroupMachine, GroupRecord, None]):
    """The coordinator of groups. Belongs to one event loop."""

    def __init__(
        self,
        world: CoordinatorWorld,
        settings: GroupSettings,
        topic: ConsumerOffsetsTopic,
        log: CoordinatorLog,
        memory: GroupMemory,
    ) -> None:
        super().__init__(world, topic.wanted(), settings.offsets_commit_timeout_ms)
        self._settings = settings
        self._memory = memory
        self._log = log

    def execute_in_transaction(
        self,
        group_id: str,
        transaction: OffsetsTransaction,
        decide: Callable[[GroupMachine], Decision[GroupRecord, T]],
    ) -> T:
        """Run a decision that counts once its transaction has committed."""
        index = self.index_of(group_id)
        partition = self._led(index)
        log = self._decisions(partition, self._runtime(index).machine, transaction)
        return self._execute(index, decide, log)

    def partition_of(self, group_id: str) -> Partition:
        """Return the partition that keeps a group; ApiError unless it can be written to now."""
        index = self.index_of(group_id)
        partition = self._led(index)
        self._runtime(index)
        return partition

    def check_ready(self, name: TopicPartition) -> None:
        """Raise ApiError NOT_LEADER_OR_FOLLOWER unless the groups of a partition are loaded."""
        try:
            self._led(name.partition)
            self._runtime(name.partition)
        except ApiError as error:
            # Coordinators of transactions know no other word for: come again.
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.detail) from error

    def on_marker(
        self,
        name: TopicPartition,
        producer_id: ProducerId,
        _producer_epoch: int,
        *,
        is_commit: bool,
        offset: Offset,  # noqa: ARG002 - other runtimes need it
    ) -> None:
        """Commit the offsets of a transaction, or drop them."""
        self._runtimes[name.partition].machine.end_transaction(producer_id, is_commit=is_commit)

    async def execute_waiting(
        self,
        group_id: str,
        decide: Callable[[GroupMachine], Decision[GroupRecord, "T | NotYet"]],
        ask_again: Callable[[GroupMachine, NotYet], Decision[GroupRecord, "T | NotYet"]],
    ) -> T:
        """Execute a request that may have to wait for other members. Nothing is settled."""
        answer = self.execute(group_id, decide)
        while isinstance(answer, NotYet):
            deadline_ms = self._clock.monotonic_ms() + _WAIT_MS
            await self._notifier.wait_any([_key(group_id)], deadline_ms)
            if self._notifier.is_closed:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker stops")
            answer = self.execute(group_id, _asking_again(ask_again, answer))
        return answer

    # -- the coordinator's hooks ----------------------------------------------------------------

    def _new_machine(self, epoch: int) -> GroupMachine:  # noqa: ARG002 - transactions need it
        return GroupMachine(self._settings, self._memory)

    async def _load_machine(self, partition: Partition, machine: GroupMachine) -> None:
        await self._log.load(partition, machine.replay)

    def _new_runtime(
        self,
        _index: int,
        partition: Partition,
        machine: GroupMachine,
    ) -> DecisionRuntime[GroupMachine, GroupRecord, None]:
        return DecisionRuntime(machine, self._decisions(partition, machine), _publish_nothing)

    def _decisions(
        self,
        partition: Partition,
        machine: GroupMachine,
        transaction: OffsetsTransaction = NO_TRANSACTION,
    ) -> _GroupDecisions:
        return _GroupDecisions(
            self._world, partition, self._commit_ms_max, self._log, machine, transaction
        )

    def _on_decided(self, machine: GroupMachine) -> None:
        # At once, committed or not: JoinGroup and SyncGroup wait for members, not for the log.
        self._notify(machine.take_notified())

    async def _on_loaded(
        self, index: int, runtime: DecisionRuntime[GroupMachine, GroupRecord, None]
    ) -> None:
        # Topics that were deleted while no coordinator could delete their offsets.
        gone = [topic for topic in runtime.machine.topics() if topic not in self._image.topics]
        await self._forget(gone, [index])

    def _on_dropped(self, _index: int, machine: GroupMachine) -> None:
        machine.stop()
        self._notify(machine.group_ids())

    def _notify(self, group_ids: Sequence[str]) -> None:
        for group_id in group_ids:
            self._notifier.notify(_key(group_id))

    # -- offsets in deleted topics --------------------------------------------------------------

    def _on_topic_removed(self, topic: str) -> None:
        self._begin(self._forget([topic], list(self._runtimes)))

    async def _forget(self, topics: Sequence[str], indexes: Sequence[int]) -> None:
        budget = YieldBudget(self._clock)
        for index, topic in product(indexes, topics):
            while index in self._runtimes and self._forget_some(index, topic):
                if budget.is_spent:
                    await budget.yield_now()

    def _forget_some(self, index: int, topic: str) -> bool:
        alive = self._image.topics.get(topic)
        alive_id = None if alive is None else alive.topic_id
        try:
            return self._execute(index, lambda machine: machine.decide_forget(topic, alive_id))
        except ApiError as error:
            _log.warning("offsets in %s, which was deleted, are kept: %s", topic, error)
            return False


def _asking_again(
    ask_again: Callable[[GroupMachine, NotYet], Decision[GroupRecord, T]], waiting: NotYet
) -> Callable[[GroupMachine], Decision[GroupRecord, T]]:
    return lambda machine: ask_again(machine, waiting)


def _publish_nothing(_: None) -> None:
    """Do nothing: what a group decides shows in responses only."""


def _log_rebalances(records: Iterable[GroupRecord]) -> None:
    """Log the new generation of each group in these records."""
    for key, value, _ in records:
        if isinstance(key, GroupMetadataKey) and isinstance(value, GroupMetadataValue):
            _log.info(
                "group %s is in generation %d with %d members",
                key.group,
                value.generation,
                len(value.members),
                extra={"group": key.group},
            )


def _key(group_id: str) -> tuple[str, str]:
    return ("group", group_id)
