"""The broker's part around the machine: append, replay, fetch producer ids, send markers."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ottla.machines.decision import Decision
from ottla.machines.moment import Moment
from ottla.machines.transactions.machine import TransactionMachine
from ottla.machines.transactions.markers import OwedMarkers
from ottla.machines.transactions.producer_ids import NeedsProducerId, Producer
from ottla.machines.transactions.records import TransactionRecord, record_of
from ottla.machines.transactions.settings import TransactionSettings
from ottla.machines.transactions.transaction import Transaction
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.coordinator_records.codec import TRANSACTION_STATE, RecordCodec
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

T = TypeVar("T")
CODEC = RecordCodec(TRANSACTION_STATE)
ID = "copier"
TIMEOUT_MS = 60_000
DAY_MS = 24 * 60 * 60_000
P0, P1, P2 = (TopicPartition("events", n) for n in range(3))


class Host:
    """One machine over one log, from which it can be reloaded at any time."""

    machine_type = TransactionMachine

    def __init__(self, level: int = 2, **settings: Any) -> None:
        self.settings = TransactionSettings(**settings)
        self.level = level
        self.log: list[tuple[bytes, bytes | None]] = []
        self.wall_ms = 1_700_000_000_000
        self.monotonic_ms = 5_000
        self.next_producer_id = 1_000
        self.owed: list[OwedMarkers] = []
        self.epoch = 0
        self.reload()

    @property
    def now(self) -> Moment:
        return Moment(self.wall_ms, self.monotonic_ms)

    def run(self, decision: Decision[TransactionRecord, T]) -> T:
        for record in decision.records:
            key = CODEC.encode_key(record.key)
            value = None
            if record.value is not None:
                value = CODEC.encode_value(record.value, record.version)
            self.log.append((key, value))
            self.machine.take(record)
        self.owed += self.machine.take_markers()
        return decision.response

    def run_with_id(
        self, decide: Callable[[int | None], Decision[TransactionRecord, "T | NeedsProducerId"]]
    ) -> T:
        answer = self.run(decide(None))
        if isinstance(answer, NeedsProducerId):
            self.next_producer_id += 1
            answer = self.run(decide(self.next_producer_id))
        assert not isinstance(answer, NeedsProducerId)
        return answer

    def reload(self, records: list[tuple[bytes, bytes | None]] | None = None) -> None:
        """Fail over to a new machine, with only the log."""
        self.epoch += 1
        self.machine = self.loaded(self.log if records is None else records)
        self.machine.start(self.now)
        self.owed = list(self.machine.take_markers())

    def loaded(self, records: Iterable[tuple[bytes, bytes | None]]) -> TransactionMachine:
        machine = self.machine_type(self.settings, coordinator_epoch=self.epoch, level=self.level)
        for key, value in dict(records).items():
            machine.replay(*CODEC.decode(key, value))
        return machine

    def pass_ms(self, duration_ms: int) -> None:
        """Advance the time, deadline by deadline."""
        end_ms = self.monotonic_ms + duration_ms
        while True:
            deadline_ms = self.machine.next_deadline_ms()
            assert deadline_ms is not None
            if deadline_ms > end_ms:
                break
            self._go_to(max(deadline_ms, self.monotonic_ms))
            self.run(self.machine.expire(self.now))
        self._go_to(end_ms)

    def _go_to(self, monotonic_ms: int) -> None:
        self.wall_ms += monotonic_ms - self.monotonic_ms
        self.monotonic_ms = monotonic_ms

    def transaction(self, transactional_id: str = ID) -> Transaction:
        found = self.machine.transaction(transactional_id)
        assert found is not None
        return found

    def go_to_epoch(self, epoch: int) -> Producer:
        """Move a producer straight to an epoch that would take long to reach."""
        self.init()
        old = self.transaction()
        producer = old.producer._replace(epoch=epoch)
        record = record_of(old._replace(producer=producer), self.level)
        self.run(Decision((record,), None))
        return producer

    # -- requests -------------------------------------------------------------------------------

    def init_response(
        self,
        transactional_id: str = ID,
        *,
        expected: Producer | None = None,
        version: int = 6,
        timeout_ms: int = TIMEOUT_MS,
        **fields: Any,
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, **fields
        )
        if expected is not None:
            request.producer_id, request.producer_epoch = expected
        return self.run_with_id(
            lambda fresh_id: self.machine.decide_init(request, version, fresh_id, self.now)
        )

    def init(self, transactional_id: str = ID, **how: Any) -> Producer:
        response = self.init_response(transactional_id, **how)
        assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code).name
        return Producer(response.producer_id, response.producer_epoch)

    def init_error(self, transactional_id: str = ID, **how: Any) -> ErrorCode:
        response = self.init_response(transactional_id, **how)
        assert response.error_code == ErrorCode.NONE or response.producer_id == -1
        return ErrorCode(response.error_code)

    def add(
        self,
        producer: Producer,
        *partitions: TopicPartition,
        transactional_id: str = ID,
        version: int = 5,
        verify_only: bool = False,
    ) -> ErrorCode:
        """Add or verify partitions; return the error code, which is the same for all."""
        wanted = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=[index])
                for topic, index in partitions
            ],
        )
        result = self.run(self.machine.decide_add_partitions(wanted, version, self.now))
        assert result.transactional_id == transactional_id
        (code,) = {
            partition.partition_error_code
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        return ErrorCode(code)

    def verify(self, producer: Producer, *partitions: TopicPartition, **how: Any) -> ErrorCode:
        return self.add(producer, *partitions, verify_only=True, **how)

    def add_offsets(
        self, producer: Producer, partition: TopicPartition, version: int = 4
    ) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=ID,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id="readers",
        )
        decision = self.machine.decide_add_offsets(request, partition, version, self.now)
        return ErrorCode(self.run(decision).error_code)

    def end_response(
        self,
        producer: Producer,
        *,
        committed: bool = True,
        transactional_id: str = ID,
        version: int = 5,
    ) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=committed,
        )
        return self.run_with_id(
            lambda fresh_id: self.machine.decide_end(request, version, fresh_id, self.now)
        )

    def end(self, producer: Producer, **how: Any) -> Producer:
        """End a transaction; return the producer id and epoch from the response."""
        response = self.end_response(producer, **how)
        assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code).name
        return Producer(response.producer_id, response.producer_epoch)

    def end_error(self, producer: Producer, **how: Any) -> ErrorCode:
        return ErrorCode(self.end_response(producer, **how).error_code)

    def mark(self, owed: OwedMarkers, *partitions: TopicPartition) -> bool:
        return self.run(self.machine.decide_marked(owed, partitions, self.now))

    def mark_all(self) -> None:
        """Write every pending marker."""
        while self.owed:
            owed = self.owed.pop()
            assert self.mark(owed, *owed.partitions)
