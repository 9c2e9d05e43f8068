"""The invariants of transactions, checked over all logs after every step.

T1   a producer's batches are in sequence
T2   a broker's producer state and a coordinator's transactions equal the state in their logs
T3   in a partition a producer's epoch never falls
T5   a coordinator makes only documented moves; a marker follows its durable decision
T6   a marker ends only the transaction that it was written for
T7   a transaction begins in a partition only if its coordinator knows, and holds back the last
     stable offset, which never falls

T4 and T8 are checked in client histories (J4, J5), and T9 by comparing copies with their source.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from ottla.broker.startup.assembly import Broker
from ottla.machines.transactions.transaction import (
    IDLE,
    MOVES,
    PREPARED,
    State,
    Transaction,
)
from ottla.model.identifiers import ProducerId, TopicPartition
from ottla.model.topic_names import TRANSACTION_STATE_TOPIC
from ottla.replication.partition import Partition
from ottla.simulation.checks.replica_invariants import InvariantError
from ottla.simulation.checks.replica_model import Batch, ReplicaModel
from ottla.simulation.checks.transaction_replay import (
    NOT_OPEN,
    Decision,
    ProducerReplay,
    Told,
    decision_of,
    transactions_in,
)
from ottla.wire.records.control import ControlType


@dataclass(slots=True)
class Replica:
    """How far a log was looked at."""

    cut_count: int
    seen: int = 0
    """How many batches."""
    producers: ProducerReplay = field(default_factory=ProducerReplay)
    transactions: dict[str, Transaction | None] = field(default_factory=dict)
    """Of a coordinator's log."""


class TransactionInvariants:
    """Raises InvariantError at the first step after which something is wrong."""

    def __init__(
        self,
        machines: Sequence[str],
        running: Callable[[str], Broker | None],
        is_late: Callable[[Partition], bool],
        now: Callable[[], float],
    ) -> None:
        """Check the brokers of these machines; `running` returns one, if it is up.

        `is_late` returns whether a leader has not heard that its epoch is over: its writes will be
        truncated.
        """
        self.decisions: list[Decision] = []
        """Every end that was decided for good, in the order of deciding."""
        self.transactions: dict[str, Transaction] = {}
        """The durable state of the coordinators."""
        self._machines = machines
        self._running = running
        self._is_late = is_late
        self._now = now
        self._decided: Counter[tuple[int, int, bool, TopicPartition]] = Counter()
        self._by_producer: dict[int, Transaction] = {}
        self._replicas: dict[object, Replica] = {}
        self._committed: Counter[TopicPartition] = Counter()
        self._stable: dict[object, tuple[int, int]] = {}

    def look_at(
        self, machine: str, partition: Partition, model: ReplicaModel, committed: int
    ) -> None:
        """Look at a replica that has changed, or of which more is committed than it knows."""
        log = partition.log
        replica = self._replicas.get(log)
        if replica is None or replica.cut_count != log.cut_count:
            replica = self._replicas[log] = Replica(log.cut_count)
        new = model.batches[replica.seen :]
        replica.seen = len(model.batches)
        where = f"{partition.name} on {machine}"
        if partition.name.topic == TRANSACTION_STATE_TOPIC:
            self._learn(partition.name, model, committed)
            self._look_at_coordinator(machine, partition, replica, new)
        else:
            for one in new:
                self._look_at_batch(where, partition, replica, one)
            self._look_at_producers(where, partition, replica, new)
        self._look_at_stable(where, partition, replica)

    def is_all_ended(self) -> bool:
        """Tell whether nothing is open, neither in a partition that is led nor at a coordinator."""
        is_open = any(
            partition.last_stable_offset < partition.log.end_offset
            for broker in filter(None, map(self._running, self._machines))
            for partition in broker.partitions
            if partition.in_sync is not None
        )
        return not is_open and all(one.state in IDLE for one in self.transactions.values())

    # -- partitions ------------------------------------------------------------------------------

    def _look_at_batch(
        self, where: str, partition: Partition, replica: Replica, one: Batch
    ) -> None:
        producers = replica.producers
        is_written_here = partition.in_sync is not None and one.epoch == partition.leader_epoch
        before = producers.told.get(one.producer_id, Told()).first_offset
        ended_count = len(producers.ended)
        producers.take(one)
        if producers.wrong:
            self._fail(f"{producers.wrong[0]} in {where}")
        if not is_written_here or one.producer_id < 0 or self._is_late(partition):
            return
        if one.marker is not None:
            self._look_at_marker(where, partition.name, one)
        elif one.is_transactional and before == NOT_OPEN:
            self._look_at_beginning(where, partition.name, one)
        if len(producers.ended) > ended_count:
            self._look_at_end(where, partition.name, replica, one)

    def _look_at_marker(self, where: str, name: TopicPartition, one: Batch) -> None:
        if not self._decided[_key(name, one)]:
            self._fail(f"T5 {where}: no coordinator has decided {one}")

    def _look_at_end(self, where: str, name: TopicPartition, replica: Replica, one: Batch) -> None:
        """T6: as many transactions end as were decided to."""
        key = _key(name, one)
        if replica.producers.ends[key[:3]] > self._decided[key]:
            self._fail(f"T6 {where}: {one} ends another transaction than its own")

    def _look_at_beginning(self, where: str, name: TopicPartition, one: Batch) -> None:
        found = self._by_producer.get(one.producer_id)
        is_known = (
            found is not None
            and name in found.partitions
            and (found.state in PREPARED or found.producer.epoch == one.producer_epoch)
        )
        if not is_known:
            self._fail(
                f"T7 {where}: {one} begins a transaction unknown to its coordinator: {found}"
            )

    def _look_at_producers(
        self, where: str, partition: Partition, replica: Replica, new: Sequence[Batch]
    ) -> None:
        for producer_id in sorted({one.producer_id for one in new if one.producer_id >= 0}):
            told = replica.producers.told[producer_id]
            entry = partition.log.producers.producer(ProducerId(producer_id))
            found = entry and (
                entry.producer_epoch,
                entry.last_sequence,
                entry.transaction_first_offset,
            )
            if found != (told.epoch, told.last_sequence, told.first_offset):
                self._fail(f"T2 {where}: {entry} is known, and the log has {told}")

    def _look_at_stable(self, where: str, partition: Partition, replica: Replica) -> None:
        stable = partition.last_stable_offset
        first, last = replica.producers.stable_offsets(partition.high_watermark)
        if not first <= stable <= last:
            self._fail(f"T7 {where}: {stable} is stable, not from {first} to {last}")
        if partition.in_sync is None:
            return
        epoch, before = self._stable.get(partition.log, (partition.leader_epoch, 0))
        if epoch == partition.leader_epoch and stable < before:
            self._fail(f"T7 {where}: {before} was stable, and {stable} is")
        self._stable[partition.log] = (partition.leader_epoch, stable)

    # -- coordinators ----------------------------------------------------------------------------

    def _look_at_coordinator(
        self,
        machine: str,
        partition: Partition,
        replica: Replica,
        new: Sequence[Batch],
    ) -> None:
        touched: dict[str, None] = {}
        for _, transactional_id, found in transactions_in(new):
            replica.transactions[transactional_id] = found
            touched[transactional_id] = None
        broker = self._running(machine)
        if partition.in_sync is None or broker is None or broker._transactions is None:  # noqa: SLF001
            return
        coordinator = broker._transactions.coordinator  # noqa: SLF001 - only checks need it
        runs = coordinator.machine_of(partition.name.partition)
        if runs is None or runs.coordinator_epoch != partition.leader_epoch:
            return
        for transactional_id in touched:
            known, told = runs.transaction(transactional_id), replica.transactions[transactional_id]
            if known != told:
                self._fail(f"T2 {machine} knows {known}, and the log has {told}")

    def _learn(self, name: TopicPartition, model: ReplicaModel, committed: int) -> None:
        """Apply committed records, from the first replica that has them."""
        seen = self._committed[name]
        unseen = takewhile(lambda one: seen <= one.base_offset, reversed(model.batches))
        new = [one for one in unseen if one.end_offset <= committed][::-1]
        for one, transactional_id, found in transactions_in(new):
            before = self.transactions.pop(transactional_id, None)
            if found is None:
                continue
            self._look_at_move(before, found)
            self.transactions[transactional_id] = found
            self._by_producer[found.producer.producer_id] = found
            decision = decision_of(found, one.epoch)
            if decision is not None:
                self.decisions.append(decision)
                for each in decision.partitions:
                    self._decided[*found.producer, found.is_commit, each] += 1
        if new:
            self._committed[name] = new[-1].end_offset

    def _look_at_move(self, before: Transaction | None, found: Transaction) -> None:
        if before is None:
            return
        if found.state not in MOVES[before.state]:
            self._fail(f"T5 {before} became {found}")
        if found.producer.epoch < before.producer.epoch and found.state is not State.EMPTY:
            self._fail(f"T3 {before} became {found}")
        is_kept = found.state is State.ONGOING and before.state is State.ONGOING
        if is_kept and not set(before.partitions) <= set(found.partitions):
            self._fail(f"T5 {before} became {found}")

    def _fail(self, detail: str) -> None:
        rule, _, rest = detail.partition(" ")
        raise InvariantError(f"{rule} at {self._now():.3f} s: {rest}")


def _key(name: TopicPartition, one: Batch) -> tuple[int, int, bool, TopicPartition]:
    assert one.marker is not None
    is_commit = one.marker.kind is ControlType.COMMIT
    return one.producer_id, one.producer_epoch, is_commit, name
