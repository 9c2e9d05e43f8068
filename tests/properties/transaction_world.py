"""A transaction coordinator, the partitions that it sends markers to, and clients that share an id.

The network may deliver any request again, at any later time; responses may be lost; the coordinator
may lose its uncommitted writes. This module asserts the invariants between them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from ottla.machines.transactions.producer_ids import LAST_EPOCH_GIVEN, NO_PRODUCER, Producer
from ottla.machines.transactions.records import transaction_of
from ottla.machines.transactions.transaction import MOVES, PREPARED, State, Transaction
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.coordinator_records.transaction_state import TransactionLogValue
from ottla.wire.messages.write_txn_markers import WritableTxnMarker
from tests.unit.machines.transactions.host import CODEC, ID, P0, P1, P2, TIMEOUT_MS, Host

if TYPE_CHECKING:
    from ottla.machines.transactions.markers import OwedMarkers

LOOK_MS = 10_000
PARTITIONS = (P0, P1, P2)


@dataclass
class Partition:
    """A partition leader's transaction state: open transactions, and the ends of earlier ones."""

    name: TopicPartition
    takes_equal_epochs: bool
    """A mutant without KIP-1228: markers may have the epoch of the next transaction."""
    epochs: dict[int, int] = field(default_factory=dict)
    coordinator_epoch: int = -1
    open: dict[int, int] = field(default_factory=dict)
    """The epoch of the open transaction of each producer id."""
    ended: dict[Producer, bool] = field(default_factory=dict)

    def append(self, producer: Producer) -> bool:
        """Accept a batch after the coordinator's approval; return False for an old epoch."""
        if producer.epoch < self.epochs.get(producer.producer_id, -1):
            return False
        assert producer not in self.ended, f"T6: {producer} goes on in {self.name} after its end"
        self.epochs[producer.producer_id] = producer.epoch
        self.open[producer.producer_id] = producer.epoch
        return True

    def write(self, marker: WritableTxnMarker) -> None:
        """Apply a marker, unless it is out of date."""
        if marker.coordinator_epoch < self.coordinator_epoch:
            return
        self.coordinator_epoch = marker.coordinator_epoch
        current = self.epochs.get(marker.producer_id, -1)
        is_new = marker.producer_epoch > current
        if marker.transaction_version < 2 or self.takes_equal_epochs:
            is_new = marker.producer_epoch >= current
        if not is_new:
            return
        self.epochs[marker.producer_id] = marker.producer_epoch
        epoch = self.open.pop(marker.producer_id, None)
        if epoch is not None:
            self.ended[Producer(marker.producer_id, epoch)] = marker.transaction_result


@dataclass(eq=False)
class Client:
    """A producer, current or fenced: it does not learn at once that another has replaced it."""

    producer: Producer | None = None
    transaction: Producer = NO_PRODUCER
    """The producer of the transaction to end: this client, or a predecessor."""


class World:
    """The coordinator, the partitions, and the clients."""

    def __init__(
        self, level: int = 2, *, takes_equal_epochs: bool = False, is_hasty: bool = False
    ) -> None:
        self.host = Host(level, transaction_two_phase_commit_enable=True)
        self.level = level
        self.is_hasty = is_hasty
        """A mutant: markers are sent before the end is committed."""
        self.host.go_to_epoch(LAST_EPOCH_GIVEN - 4)
        self.committed = len(self.host.log)
        self.partitions = {name: Partition(name, takes_equal_epochs) for name in PARTITIONS}
        self.clients = [Client(), Client()]
        self.requests: list[Callable[[], object]] = []
        """Sent requests, each of which may arrive again."""
        self.markers: list[tuple[OwedMarkers, TopicPartition]] = []
        self.told = NO_PRODUCER
        """The last producer id and epoch that a client has received."""
        self.decided: dict[Producer, bool] = {}
        self.expected: dict[Producer, bool] = {}
        """The ends of transactions, as reported to clients."""
        self.wanted: set[Producer] = set()
        """The transactions that clients have asked to commit."""
        self.owners: dict[Producer, int] = {}

    # -- clients --------------------------------------------------------------------------------

    def sent(self, request: Callable[[], object]) -> None:
        self.requests.append(request)

    def init(self, client: Client, *, knows: bool, keeps: bool, is_heard: bool) -> None:
        expected = client.producer if knows else None
        keeps = keeps and self.level == 2

        def ask() -> tuple[ErrorCode, Producer, Producer]:
            answer = self.host.init_response(expected=expected, keep_prepared_txn=keeps)
            producer = Producer(answer.producer_id, answer.producer_epoch)
            ongoing = (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
            return ErrorCode(answer.error_code), producer, Producer(*ongoing)

        self.sent(ask)
        code, producer, ongoing = ask()
        if is_heard and code is ErrorCode.NONE:
            self.settle()
            self.tell(client, producer)
            client.producer = producer
            client.transaction = producer if ongoing == NO_PRODUCER else ongoing

    def produce(self, client: Client, name: TopicPartition) -> None:
        producer = client.producer
        if producer is None:
            return
        version = 5 if self.level == 2 else 3

        def ask() -> None:
            code = self.host.add(producer, name, version=version)
            if self.level < 2:
                code = self.host.verify(producer, name)
            if code is ErrorCode.NONE:
                self.settle()
                self.append(producer, name)

        self.sent(ask)
        ask()

    def append(self, producer: Producer, name: TopicPartition) -> None:
        if self.level < 2:
            self.partitions[name].ended.pop(producer, None)
        if self.partitions[name].append(producer):
            assert (producer.producer_id, producer.epoch) >= self.told, f"T3: {producer} was fenced"

    def end(self, client: Client, *, committed: bool, is_heard: bool) -> None:
        producer, transaction = client.producer, client.transaction
        if producer is None:
            return
        version = 5 if self.level == 2 else 4
        if committed:
            self.wanted.add(transaction)

        def ask() -> tuple[ErrorCode, Producer]:
            answer = self.host.end_response(producer, committed=committed, version=version)
            told = Producer(answer.producer_id, answer.producer_epoch)
            return ErrorCode(answer.error_code), told

        self.sent(ask)
        code, told = ask()
        if not is_heard or code is not ErrorCode.NONE:
            return
        self.settle()
        if self.level == 2:
            self.expected[transaction] = committed
            self.tell(client, told)
            client.producer = client.transaction = told

    def tell(self, client: Client, producer: Producer) -> None:
        assert 0 <= producer.epoch <= LAST_EPOCH_GIVEN, f"{producer} was given to a client"
        assert producer >= self.told, f"T3: {producer} after {self.told}"
        owner = self.owners.setdefault(producer, self.clients.index(client))
        assert self.clients[owner] is client, f"T3: {producer} was told to two clients"
        self.told = producer

    # -- the coordinator ------------------------------------------------------------------------

    def settle(self) -> None:
        """Commit all written records."""
        self.committed = len(self.host.log)

    def crash(self, kept: int) -> None:
        """Load another coordinator, which has lost some or all uncommitted records."""
        end = min(self.committed + kept, len(self.host.log))
        del self.host.log[end:]
        self.host.reload()
        self.settle()
        self.markers.clear()

    def owe(self) -> None:
        """Begin to send the markers that are due."""
        if not self.is_hasty:
            self.settle()
        while self.host.owed:
            owed = self.host.owed.pop(0)
            self.markers += [(owed, partition) for partition in owed.partitions]
            if not owed.partitions:
                self.host.mark(owed)

    def mark(self, index: int, *, is_heard: bool) -> None:
        """Have one marker written; without an acknowledgement it is sent again."""
        owed, name = self.markers[index % len(self.markers)]
        message = owed.message([name])
        self.sent(lambda: self.partitions[name].write(message))
        self.partitions[name].write(message)
        if is_heard:
            del self.markers[index % len(self.markers)]
            self.host.mark(owed, name)

    def rest(self) -> None:
        """Let all pending work finish."""
        for _ in range(3):
            self.owe()
            while self.markers:
                self.mark(0, is_heard=True)
            self.host.pass_ms(TIMEOUT_MS + LOOK_MS + 1)
        if (found := self.host.transaction()).state is State.ONGOING:
            assert found.timeout_ms > TIMEOUT_MS

    # -- invariants -----------------------------------------------------------------------------

    def check(self) -> None:
        self.check_log()
        self.check_open()
        self.check_ends()

    def history(self) -> list[Transaction]:
        found = []
        for key, raw in self.host.log:
            value = CODEC.decode(key, raw)[1]
            assert isinstance(value, TransactionLogValue)
            one = transaction_of(ID, value)
            assert one is not None
            found.append(one)
        return found

    def check_log(self) -> None:
        """T5: the log has only moves of the table. T2: its last record is the current state."""
        history = self.history()
        for before, after in pairwise(history[1:]):
            assert after.state in MOVES[before.state], f"T5: {before} to {after}"
            assert after.holder >= before.holder, f"T3: {before} to {after}"
        assert history[-1] == self.host.transaction(), "T2: the log knows another state"
        for one in history[: self.committed]:
            if one.state in PREPARED and self.level == 2:
                before = self.decided.setdefault(one.producer, one.is_commit)
                assert before == one.is_commit, f"T5: {one} was decided before"

    def check_open(self) -> None:
        """T7: the coordinator will end every open transaction of a partition."""
        found = self.host.transaction()
        for partition in self.partitions.values():
            for producer_id, epoch in partition.open.items():
                assert found.producer.producer_id == producer_id, f"T7: {partition}, {found}"
                assert partition.name in found.partitions, f"T7: {partition}, {found}"
                assert found.state in {State.ONGOING} | PREPARED
                if found.state is State.ONGOING and self.level == 2:
                    assert found.producer.epoch == epoch, f"T7: {partition}, {found}"

    def check_ends(self) -> None:
        """T4: a transaction has the same end everywhere, as reported to its client."""
        ends: dict[Producer, bool] = dict(self.expected)
        for partition in self.partitions.values():
            for producer, is_commit in partition.ended.items():
                if self.level == 2:
                    other = ends.setdefault(producer, is_commit)
                    assert other == is_commit, f"T4: {producer} in {partition}"
                    is_wanted = not is_commit or producer in self.wanted
                    assert is_wanted, f"T6: nobody has asked to commit {producer}"
