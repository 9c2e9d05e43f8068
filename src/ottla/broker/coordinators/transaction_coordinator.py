"""Runs the transactions: each id belongs to one partition of `__transaction_state`.

How machines are run is in `coordinator_runtime.py`. The end of a transaction, by a request or by
its timeout, owes markers. They are sent once the end is committed (`marker_sender.py`), and written
markers are reported to the machine.

A broker without a valid lease answers nothing: its successor may have ended transactions that it
believes to be open.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from ottla.broker.coordinators.coordinator_log import CoordinatorLog
from ottla.broker.coordinators.coordinator_runtime import (
    CoordinatorRuntime,
    CoordinatorWorld,
    PartitionDecisions,
)
from ottla.broker.coordinators.marker_sender import MarkerSender
from ottla.broker.coordinators.producer_id_allocator import ProducerIds
from ottla.broker.coordinators.transaction_state_topic import TransactionStateTopic
from ottla.broker.decision_runtime import DecisionRuntime
from ottla.concurrency.yield_budget import YieldBudget
from ottla.machines.controller.features import TRANSACTION_VERSION_FEATURE
from ottla.machines.decision import Decision
from ottla.machines.transactions.add_partitions import Enlistment
from ottla.machines.transactions.machine import TransactionMachine
from ottla.machines.transactions.markers import OwedMarkers
from ottla.machines.transactions.producer_ids import NeedsProducerId
from ottla.machines.transactions.records import TransactionRecord
from ottla.machines.transactions.settings import TransactionSettings
from ottla.machines.transactions.transaction import PREPARED
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ProducerId, TopicPartition
from ottla.replication.partition import Partition
from ottla.wire.schema import Message

COMMIT_MS_MAX: Final = 10_000
"""How long a client waits for the replicas before it has to retry."""
AGAIN_MS: Final = 200
"""When something is tried again that the replicas did not allow."""
ENDING_MS_MAX: Final = 500
"""How long a producer waits for its last markers before CONCURRENT_TRANSACTIONS."""
T = TypeVar("T")
DecideWithId = Callable[
    [TransactionMachine, int | None], Decision[TransactionRecord, T | NeedsProducerId]
]
_log = logging.getLogger(__name__)


class _TransactionEnd(NamedTuple):
    """The key that is notified when the markers of an id are written."""

    transactional_id: str


_Owed = tuple[OwedMarkers, ...]
_Runtime = DecisionRuntime[TransactionMachine, TransactionRecord, _Owed]


class _TransactionDecisions(PartitionDecisions[TransactionRecord, _Owed]):
    """The decisions of one partition's transactions; their effects are owed markers."""

    def __init__(
        self,
        world: CoordinatorWorld,
        partition: Partition,
        log: CoordinatorLog,
        machine: TransactionMachine,
    ) -> None:
        super().__init__(world, partition, COMMIT_MS_MAX)
        self._log = log
        self._machine = machine

    def _take(self, records: tuple[TransactionRecord, ...]) -> _Owed | None:
        self._log.append(self.partition, records)
        for record in records:
            self._machine.take(record)
        return self._machine.take_markers() or None


class TransactionCoordinator(CoordinatorRuntime[TransactionMachine, TransactionRecord, _Owed]):
    """The coordinator of transactions. Belongs to one event loop."""

    def __init__(
        self,
        world: CoordinatorWorld,
        settings: TransactionSettings,
        topic: TransactionStateTopic,
        log: CoordinatorLog,
        markers: MarkerSender,
        producer_ids: ProducerIds,
    ) -> None:
        super().__init__(world, topic.wanted(), COMMIT_MS_MAX)
        self._settings = settings
        self._log = log
        self._markers = markers
        self._producer_ids = producer_ids

    async def answer(
        self,
        transactional_id: str,
        decide: Callable[[TransactionMachine], Decision[TransactionRecord, T]],
    ) -> T:
        """Decide, and return the response when the state behind it is committed.

        Raises ApiError if the id is not coordinated here, or too few replicas keep the decision.
        """
        index = self.index_of(transactional_id)
        response = self._execute(index, decide)
        await self._runtime(index).committed()
        return response

    async def answer_with_id(self, transactional_id: str, decide: DecideWithId[T]) -> T:
        """Do the same for a decision that may need a new producer id."""
        fresh_id = None
        while True:
            response = await self.answer(transactional_id, _with(decide, fresh_id))
            if not isinstance(response, NeedsProducerId):
                return response
            fresh_id = await self._producer_ids.next()

    async def enlist(self, wanted: Enlistment) -> Mapping[TopicPartition, ErrorCode]:
        """Add partitions to a transaction, or verify them, for a leader on this broker.

        Return a code for each; raises ApiError as `answer` does. The first partitions wait for the
        end of the previous transaction.
        """
        if wanted.is_adding and self._is_ending(wanted.transactional_id):
            await self.ended(wanted.transactional_id)
        now = self.moment()
        return await self.answer(
            wanted.transactional_id, lambda machine: machine.decide_enlist(wanted, now)
        )

    async def ended(self, transactional_id: str) -> None:
        """Return when no markers of an id are owed any more; earlier, if that takes long.

        Markers are written in a moment, while a producer that gets CONCURRENT_TRANSACTIONS instead
        retries after 20 or 100 ms.
        """
        deadline_ms = self._clock.monotonic_ms() + ENDING_MS_MAX
        while self._is_ending(transactional_id) and await self._notifier.wait_any(
            [_TransactionEnd(transactional_id)], deadline_ms
        ):
            pass

    def on_change(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Follow the cluster, which may also have another version of transactions."""
        super().on_change(image, records)
        for machine in self.machines:
            machine.use_level(_level(image))

    # -- the coordinator's hooks ----------------------------------------------------------------

    def _led(self, index: int) -> Partition:
        if not self._world.has_valid_lease():
            raise ApiError(ErrorCode.NOT_COORDINATOR, "another broker may be its coordinator")
        return super()._led(index)

    def _new_machine(self, epoch: int) -> TransactionMachine:
        return TransactionMachine(
            self._settings, coordinator_epoch=epoch, level=_level(self._image)
        )

    async def _load_machine(self, partition: Partition, machine: TransactionMachine) -> None:
        def replay(key: Message, value: Message | None, _producer_id: ProducerId) -> None:
            machine.replay(key, value)

        await self._log.load(partition, replay)

    def _new_runtime(
        self, index: int, partition: Partition, machine: TransactionMachine
    ) -> _Runtime:
        decisions = _TransactionDecisions(self._world, partition, self._log, machine)
        owe = partial(self._owe, index, machine)
        return DecisionRuntime(machine, decisions, owe, partial(self._on_uncommitted, index))

    def _on_decided(self, machine: TransactionMachine) -> None:
        """Do nothing: no request waits for soft state."""

    async def _on_loaded(self, _index: int, runtime: _Runtime) -> None:
        runtime.machine.use_level(_level(self._image))
        owed = runtime.machine.take_markers()
        if owed:
            runtime.publish_once_committed(owed)

    def _on_dropped(self, index: int, _machine: TransactionMachine) -> None:
        self._markers.forget(index)

    def _on_topic_removed(self, topic: str) -> None:
        """Do nothing: the markers of a deleted partition count as written."""

    # -- markers --------------------------------------------------------------------------------

    def _owe(self, index: int, machine: TransactionMachine, owed: _Owed) -> None:
        """Send the markers of transactions with a committed end."""
        if len(owed) == 1:
            # After the response: its receiver works meanwhile.
            asyncio.get_running_loop().call_soon(self._send, index, machine, *owed)
        else:
            self._begin(self._send_all(index, machine, owed))

    async def _on_uncommitted(self, index: int, error: ApiError) -> bool:
        _log.info("%s-%d: markers have to wait: %s", self.topic, index, error)
        return await self._pause()

    async def _send_all(self, index: int, machine: TransactionMachine, owed: _Owed) -> None:
        budget = YieldBudget(self._clock)
        for each in owed:
            self._send(index, machine, each)
            await budget.yield_if_spent()

    def _send(self, index: int, machine: TransactionMachine, owed: OwedMarkers) -> None:
        if self._runs(index, machine):
            self._markers.owe(index, owed, self._reporting(index, machine))

    def _reporting(
        self, index: int, machine: TransactionMachine
    ) -> Callable[[OwedMarkers, Sequence[TopicPartition]], None]:
        def report(owed: OwedMarkers, written: Sequence[TopicPartition]) -> None:
            if not self._try_to_report(index, machine, owed, written):
                self._begin(self._report_again(index, machine, owed, written))

        return report

    async def _report_again(
        self,
        index: int,
        machine: TransactionMachine,
        owed: OwedMarkers,
        written: Sequence[TopicPartition],
    ) -> None:
        while not self._try_to_report(index, machine, owed, written):
            await self._pause()

    def _try_to_report(
        self,
        index: int,
        machine: TransactionMachine,
        owed: OwedMarkers,
        written: Sequence[TopicPartition],
    ) -> bool:
        """Report written markers; False if that must be repeated."""
        if not self._runs(index, machine):
            return True  # its successor sends them again, and gets the report
        now = self.moment()
        try:
            is_last = self._execute(index, lambda found: found.decide_marked(owed, written, now))
        except ApiError as error:
            _log.info("%s-%d: an end has to wait: %s", self.topic, index, error)
            return False
        if is_last:
            self._notifier.notify(_TransactionEnd(owed.transactional_id))
        return True

    def _is_ending(self, transactional_id: str) -> bool:
        if not self._partition_count:
            return False
        machine = self.machine_of(self.index_of(transactional_id))
        transaction = None if machine is None else machine.transaction(transactional_id)
        return transaction is not None and transaction.state in PREPARED

    def _runs(self, index: int, machine: TransactionMachine) -> bool:
        """Return whether a machine is still its partition's; False when the broker stops."""
        return self.machine_of(index) is machine and not self._notifier.is_closed

    async def _pause(self) -> bool:
        """Wait before something is tried again; False if the broker stops."""
        # A key that is never notified: only the stop of the broker ends the wait early.
        deadline_ms = self._clock.monotonic_ms() + AGAIN_MS
        await self._notifier.wait_any((), deadline_ms)
        return not self._notifier.is_closed


def _with(
    decide: DecideWithId[T], fresh_id: int | None
) -> Callable[[TransactionMachine], Decision[TransactionRecord, T | NeedsProducerId]]:
    return lambda machine: decide(machine, fresh_id)


def _level(image: ClusterImage) -> int:
    return image.level_by_feature.get(TRANSACTION_VERSION_FEATURE, 0)
