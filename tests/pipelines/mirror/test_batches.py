"""Batches cut from fetched bytes: whole batches with a new header, and the exceptions."""

from ottla.clients.producer.transactions.transaction_requests import ProducerName
from ottla.pipelines.mirror.batches import Span, pieces_of, seal
from ottla.pipelines.mirror.copying import runs_of
from ottla.pipelines.mirror.offset_syncs import Run
from ottla.wire.messages.fetch import AbortedTransaction
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import build_batch
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.control import ControlType, end_txn_marker
from ottla.wire.records.message_set import to_message_set
from ottla.wire.records.record import Record, RecordHeader, records_of


def records(*offsets: int) -> list[Record]:
    header = RecordHeader("h", b"x")
    return [Record(one, 1_000 + one, b"k%d" % one, b"v%d" % one, (header,)) for one in offsets]


def data_of(*batches: bytearray | bytes) -> memoryview:
    return memoryview(bytearray(b"".join(batches)))


def marker(kind: ControlType, producer_id: int, offset: int) -> bytearray:
    raw = end_txn_marker(kind, 0, producer_id, 0, 1_000)
    RecordBatch(memoryview(raw)).restamp(offset, 0)
    return raw


def test_a_whole_batch_is_sealed_in_place_and_its_records_stay() -> None:
    for codec in Compression:
        data = data_of(build_batch(records(5, 6, 7), compression=codec, leader_epoch=3))
        before = bytes(data[61:])
        (piece,) = pieces_of(data, 5, ())
        seal(piece.raw, ProducerName(9, 2), 44)
        batch = RecordBatch(piece.raw)
        batch.check_crc()
        assert bytes(data[61:]) == before, "written in place"
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 2, 44)
        assert (batch.base_offset, batch.partition_leader_epoch) == (0, -1)
        assert batch.is_transactional
        assert batch.compression is codec
        assert piece.spans == (Span(5, 3),)


def test_what_was_aborted_and_markers_come_as_pieces_without_records() -> None:
    transactional = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    data = data_of(
        build_batch(records(0, 1), producer_id=1, **transactional),
        build_batch(records(2, 3), producer_id=2, **transactional),
        marker(ControlType.ABORT, 1, 4),
        marker(ControlType.COMMIT, 2, 5),
        build_batch(records(6), producer_id=1, **transactional),
    )
    aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
    pieces = list(pieces_of(data, 0, aborted))
    assert [piece.record_count for piece in pieces] == [0, 2, 0, 0, 1]
    assert [piece.end_offset for piece in pieces] == [2, 4, 5, 6, 7]


def test_a_batch_with_gaps_is_written_without_them() -> None:
    data = data_of(build_batch(records(10, 13, 14, 19), compression=Compression.ZSTD))
    (piece,) = pieces_of(data, 10, ())
    seal(piece.raw, ProducerName(1, 0), 0)
    batch = RecordBatch(piece.raw)
    batch.check_gapless()
    assert batch.compression is Compression.ZSTD
    expected = [row._replace(offset=number) for number, row in enumerate(records(10, 13, 14, 19))]
    assert records_of(batch) == expected
    assert piece.spans == [Span(10, 1), Span(13, 2), Span(19, 1)]
    assert runs_of([piece.spans], [100]) == (Run(10, 100, 1), Run(13, 101, 2), Run(19, 103, 1))


def test_a_batch_that_begins_too_early_is_cut() -> None:
    data = data_of(build_batch(records(0, 1, 2, 3)), build_batch(records(4, 5)))
    first, second = pieces_of(data, 2, ())
    assert (first.record_count, first.spans) == (2, [Span(2, 2)])
    assert second.spans == (Span(4, 2),)


def test_the_brokers_time_becomes_the_time_of_every_record() -> None:
    data = data_of(build_batch(records(0, 1), log_append_time_ms=77))
    (piece,) = pieces_of(data, 0, ())
    batch = RecordBatch(piece.raw)
    assert not batch.is_log_append_time
    assert [row.timestamp_ms for row in records_of(batch)] == [77, 77]


def test_messages_of_old_formats_become_batches() -> None:
    old = [row._replace(headers=()) for row in records(0, 1, 2)]
    for magic in (0, 1):
        for codec in (Compression.NONE, Compression.GZIP):
            data = data_of(
                to_message_set(old, magic=magic, compression=codec),
                build_batch(records(3, 4)),
            )
            first, second = pieces_of(data, 0, ())
            assert [row.value for row in records_of(RecordBatch(first.raw))] == [
                b"v0",
                b"v1",
                b"v2",
            ]
            assert (first.end_offset, second.end_offset) == (3, 5)


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    whole, cut = build_batch(records(0, 1)), build_batch(records(2, 3))
    for size in range(len(cut)):
        assert len(list(pieces_of(data_of(whole, cut[:size]), 0, ()))) == 1


def test_neighbours_make_one_run_until_there_is_a_gap_on_either_side() -> None:
    spans = [(Span(0, 5),), (Span(5, 5),), (Span(11, 2),), (Span(13, 1),)]
    runs = runs_of(spans, [0, 5, 10, 13])
    assert runs == (Run(0, 0, 10), Run(11, 10, 2), Run(13, 13, 1))
