"""The records that an application gets from the batches of one fetch."""

import pytest

from ottla.clients.consumer.fetching.fetched_batches import FetchedPartition, end_of_batches
from ottla.clients.consumer.state.errors import CorruptRecordError, DeserializationError
from ottla.clients.consumer.state.subscription import AssignedPartition, Phase, Position
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.fetch import AbortedTransaction
from ottla.wire.records.batch import (
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    batch_at,
    write_crc,
)
from ottla.wire.records.builder import build_batch
from ottla.wire.records.control import ControlType, end_txn_marker
from ottla.wire.records.record import Record
from tests.old_messages import message

NAME = TopicPartition("letters", 0)
PLAIN = (None, None)


def batch(offset: int, count: int = 1, producer_id: int = -1, epoch: int = 0) -> bytearray:
    records = [Record(offset + n, 0, None, b"%d" % (offset + n)) for n in range(count)]
    is_transactional = producer_id >= 0
    raw = build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=0 if is_transactional else -1,
        base_sequence=0 if is_transactional else -1,
        is_transactional=is_transactional,
    )
    batch_at(raw).restamp(offset, epoch)
    return bytearray(raw)


def marker(offset: int, kind: ControlType, producer_id: int) -> bytearray:
    raw = end_txn_marker(kind, 0, producer_id, 0, 0)
    batch_at(raw).restamp(offset, 0)
    return raw


def fetched(
    *batches: bytes | bytearray,
    start: int = 0,
    aborted: list[tuple[int, int]] | None = None,
    check_crcs: bool = True,
) -> FetchedPartition:
    partition = AssignedPartition(NAME)
    partition.place(Position(start), Phase.READING)
    return FetchedPartition(
        partition,
        memoryview(b"".join(batches)),
        [AbortedTransaction(producer_id=p, first_offset=o) for p, o in aborted or []],
        check_crcs=check_crcs,
        is_committed_only=aborted is not None,
    )


def offsets(found: FetchedPartition) -> list[int]:
    return [record.offset for record in found.read(1000, PLAIN)]


def test_records_come_in_chunks_and_the_position_follows_them() -> None:
    found = fetched(batch(0, 5, epoch=4), batch(5, 2, epoch=6))
    assert [record.offset for record in found.read(3, PLAIN)] == [0, 1, 2]
    assert found.partition.position == Position(3, 4)
    assert [record.offset for record in found.read(3, PLAIN)] == [3, 4, 5]
    assert found.partition.position == Position(6, 6)
    assert offsets(found) == [6]
    assert found.partition.position == Position(7, 6)
    assert found.is_over


def test_records_before_the_position_are_left_out() -> None:
    assert offsets(fetched(batch(0, 5), batch(5), start=3)) == [3, 4, 5]


def test_a_batch_that_is_cut_off_at_the_end_is_left_for_the_next_fetch() -> None:
    found = fetched(batch(0), batch(1)[:-1])
    assert offsets(found) == [0]
    assert found.partition.position == Position(1, 0)


def test_a_brokers_own_batches_are_left_out_and_the_position_goes_over_them() -> None:
    found = fetched(batch(0, 1, 7), marker(1, ControlType.COMMIT, 7))
    assert offsets(found) == [0]
    assert found.partition.position == Position(2, 0)


def test_an_aborted_transaction_is_left_out_and_the_next_of_its_producer_is_not() -> None:
    log = (
        batch(0, 2, 7),
        batch(2, 1, 8),
        marker(3, ControlType.ABORT, 7),
        batch(4, 1, 7),
        marker(5, ControlType.COMMIT, 7),
    )
    assert offsets(fetched(*log, aborted=[(7, 0)])) == [2, 4]
    assert offsets(fetched(*log)) == [0, 1, 2, 4]


def test_a_transaction_that_began_before_the_fetch_is_left_out_to_its_end() -> None:
    log = (batch(10, 1, 7), marker(11, ControlType.ABORT, 7), batch(12, 1, 7))
    assert offsets(fetched(*log, start=10, aborted=[(7, 3)])) == [12]


def test_two_aborted_transactions_of_one_producer_are_both_left_out() -> None:
    log = (
        batch(0, 1, 7),
        marker(1, ControlType.ABORT, 7),
        batch(2),
        batch(3, 1, 7),
        marker(4, ControlType.ABORT, 7),
    )
    assert offsets(fetched(*log, aborted=[(7, 0), (7, 3)])) == [2]


def test_arrow_goes_on_where_records_stopped_and_leaves_out_what_was_aborted() -> None:
    log = (
        batch(0, 2, 7),
        marker(2, ControlType.ABORT, 7),
        batch(3, 4),
        batch(7, 2, 7),
        marker(9, ControlType.ABORT, 7),
        batch(10, 1),
    )
    found = fetched(*log, aborted=[(7, 0), (7, 7)])
    assert [record.offset for record in found.read(2, PLAIN)] == [3, 4]
    for _ in range(2):
        rows = found.as_arrow(found.next_offset, ["offset", "value"])
    found.finish(rows)
    assert [o for batch_ in rows.batches for o in batch_["offset"].to_pylist()] == [5, 6, 10]
    assert found.partition.position == Position(11, 0)
    assert found.is_over


def test_a_flipped_bit_is_told_after_the_records_before_it_and_the_position_stays() -> None:
    bad = batch(2, 3)
    bad[-1] ^= 1
    found = fetched(batch(0, 2), bad, batch(5))
    assert offsets(found) == [0, 1]
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=r"letters-0 offset 2: .*CRC.*seek") as raised:
            found.read(10, PLAIN)
    assert (raised.value.offset, raised.value.next_offset) == (2, 5)
    assert found.partition.position == Position(2, 0)


def test_without_crc_checks_a_flipped_bit_of_a_value_goes_through() -> None:
    bad = batch(0)
    bad[-2] ^= 1
    assert offsets(fetched(bad, check_crcs=False)) == [0]


def test_damage_in_arrow_names_the_position() -> None:
    bad = batch(0, 3)
    bad[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="letters-0 offset 0") as raised:
        fetched(bad).as_arrow(0, None)
    assert raised.value.next_offset == 3


@pytest.mark.parametrize("aborted", [None, [(7, 0)]])
def test_damage_in_arrow_is_told_after_the_rows_before_it(
    aborted: list[tuple[int, int]] | None,
) -> None:
    bad = batch(5, 3)
    bad[-1] ^= 1
    found = fetched(batch(0, 2), batch(2, 3, epoch=4), bad, batch(8), aborted=aborted)
    rows = found.as_arrow(1, ["offset"])
    assert [o for batch_ in rows.batches for o in batch_["offset"].to_pylist()] == [1, 2, 3, 4]
    found.finish(rows)
    assert (found.partition.position, found.is_over) == (Position(5, 4), False)
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=r"offset 5: .*CRC") as raised:
            found.as_arrow(found.next_offset, ["offset"])
        assert (raised.value.offset, raised.value.next_offset) == (5, 8)


def test_arrow_knows_after_a_damaged_batch_what_was_aborted_before_it() -> None:
    bad = batch(1)
    bad[-1] ^= 1
    found = fetched(batch(0, 1, 7), bad, batch(2, 1, 7), batch(3), aborted=[(7, 0)])
    found.finish(found.as_arrow(0, ["offset"]))
    bad[-1] ^= 1
    found._data = memoryview(b"".join((bad, batch(2, 1, 7), batch(3))))
    rows = found.as_arrow(found.next_offset, ["offset"])
    assert [o for batch_ in rows.batches for o in batch_["offset"].to_pylist()] == [1, 3]


def test_a_header_that_cannot_be_right_is_told_every_time() -> None:
    bad = batch(0)
    bad[16] = 9
    found = fetched(bad)
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="unknown magic 9"):
            found.read(1, PLAIN)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_older_than_batches_are_called_by_their_name(magic: int) -> None:
    with pytest.raises(CorruptRecordError, match=f"magic {magic}, older than record batches"):
        fetched(message(0, b"x" * 100, magic=magic)).read(1, PLAIN)


def test_a_value_that_cannot_be_read_names_its_own_offset() -> None:
    def refuse(topic: str, data: bytes, headers: object) -> bytes:
        if data == b"2":
            raise ValueError("not JSON")
        return data

    found = fetched(batch(0, 5))
    assert [record.offset for record in found.read(9, (None, refuse))] == [0, 1]
    with pytest.raises(DeserializationError, match="offset 2: ValueError: not JSON") as raised:
        found.read(9, (None, refuse))
    assert raised.value.next_offset == 3
    assert found.partition.position == Position(2, 0)


def test_the_end_of_batches_is_that_of_the_last_whole_one() -> None:
    data = bytes(batch(3, 4, epoch=2)) + bytes(batch(7, 2, epoch=5))
    assert end_of_batches(memoryview(data)) == Position(9, 5)
    assert end_of_batches(memoryview(data[:-1])) == Position(7, 2)
    assert end_of_batches(memoryview(data[:20])) is None


@pytest.mark.parametrize("aborted", [None, []], ids=["all", "committed"])
def test_a_marker_that_compaction_has_emptied_is_passed_over(
    aborted: list[tuple[int, int]] | None,
) -> None:
    emptied = marker(0, ControlType.COMMIT, 7)[:HEADER_BYTES]
    fields = list(HEADER.unpack_from(emptied))
    fields[1], fields[-1] = HEADER_BYTES - LOG_OVERHEAD_BYTES, 0  # batch length, record count
    HEADER.pack_into(emptied, 0, *fields)
    write_crc(memoryview(emptied))
    assert offsets(fetched(emptied, batch(1), aborted=aborted)) == [1]
