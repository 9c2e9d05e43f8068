"""What an application sees of fetched batches."""

import pytest

from ottla.clients.fetcher import Fetched
from ottla.model.identifiers import TopicPartition
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import RecordBatch, batch_at
from ottla.wire.records.builder import build_batch
from ottla.wire.records.control import ControlType, end_txn_marker
from ottla.wire.records.record import Record

NAME = TopicPartition("letters", 0)


def batch(offset: int, count: int = 1, producer_id: int = -1) -> RecordBatch:
    records = [Record(offset + n, 0, None, b"%d" % (offset + n)) for n in range(count)]
    transactional = producer_id >= 0
    return batch_at(
        build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if transactional else -1,
            base_sequence=0 if transactional else -1,
            is_transactional=transactional,
        )
    )


def marker(offset: int, kind: ControlType, producer_id: int) -> RecordBatch:
    made = batch_at(end_txn_marker(kind, 0, producer_id, 0, 0))
    made.restamp(offset, 0)
    return made


def offsets(
    batches: list[RecordBatch], start: int = 0, aborted: dict[int, list[int]] | None = None
) -> list[int]:
    fetched = Fetched(NAME, start, batches[-1].end_offset, 100, batches, aborted or {})
    return [record.offset for record in fetched.records()]


def test_records_before_the_offset_that_was_asked_for_are_left_out() -> None:
    assert offsets([batch(0, 5), batch(5)], start=3) == [3, 4, 5]


def test_a_brokers_own_batches_are_left_out() -> None:
    assert offsets([batch(0, 1, 7), marker(1, ControlType.COMMIT, 7), batch(2)]) == [0, 2]


def test_an_aborted_transaction_is_left_out_and_the_next_of_its_producer_is_not() -> None:
    batches = [
        batch(0, 2, 7),
        batch(2, 1, 8),
        marker(3, ControlType.ABORT, 7),
        batch(4, 1, 7),
        marker(5, ControlType.COMMIT, 7),
    ]
    assert offsets(batches, aborted={7: [0]}) == [2, 4]


def test_a_transaction_that_began_before_the_fetch_is_left_out_to_its_end() -> None:
    batches = [batch(10, 1, 7), marker(11, ControlType.ABORT, 7), batch(12, 1, 7)]
    assert offsets(batches, start=10, aborted={7: [3]}) == [12]


def test_two_aborted_transactions_of_one_producer_are_both_left_out() -> None:
    batches = [
        batch(0, 1, 7),
        marker(1, ControlType.ABORT, 7),
        batch(2),
        batch(3, 1, 7),
        marker(4, ControlType.ABORT, 7),
    ]
    assert offsets(batches, aborted={7: [0, 3]}) == [2]


def test_a_flipped_bit_is_found() -> None:
    content = bytearray(batch(0).raw)
    content[-1] ^= 1
    with pytest.raises(ProtocolError, match="CRC"):
        offsets([batch_at(content)])
