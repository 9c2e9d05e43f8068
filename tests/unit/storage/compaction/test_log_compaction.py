"""The records that compaction keeps and removes."""

import pytest

from ottla.model.settings.topic_config import TimestampType, TopicConfig
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.compaction.compaction_plan import CompactionPlan, plan
from ottla.storage.compaction.log_compaction import AbandonedCompactionError, Compaction
from ottla.storage.files.damage import Damage
from ottla.storage.log.log import PartitionLog
from ottla.storage.segments.segment_batches import CorruptSegmentError
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.control import ControlType
from tests.unit.storage.compacted_logs import (
    DAY_MS,
    DIRECTORY,
    START_MS,
    Writer,
    batches_of,
    committed,
    compact,
    compacted,
    data_batches,
    files_of,
    last_stable_offset,
    offsets_of,
    opened,
    records_in,
    state_of,
    take_over,
)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def writer_to(disk: SimulatedDisk, config: TopicConfig | None = None) -> Writer:
    return Writer(opened(disk, config or compacted()))


def test_only_the_last_value_of_each_key_stays(disk: SimulatedDisk) -> None:
    writer = writer_to(disk)
    writer.put((b"a", b"1"), (b"b", b"2"))
    writer.put((b"a", b"3"))
    writer.put((b"c", b"4"), (b"a", b"5"))
    writer.roll()
    before = records_in(batches_of(writer.log))
    assert compact(disk, writer.log) == 5
    kept = records_in(batches_of(writer.log))
    assert [record.offset for record in kept] == [1, 3, 4]
    assert all(record in before for record in kept)
    assert len(writer.log.segments) == 2


def test_a_batch_that_loses_no_record_is_kept_byte_for_byte(disk: SimulatedDisk) -> None:
    writer = writer_to(disk)
    for number, codec in enumerate(Compression):
        writer.put((b"%d" % number, b"value" * 50), codec=codec)
    writer.put((b"again", b"1"))
    writer.put((b"again", b"2"))
    writer.roll()
    before = batches_of(writer.log)
    compact(disk, writer.log)
    after = batches_of(writer.log)
    assert [batch.raw for batch in after] == [batch.raw for batch in [*before[:5], before[6]]]


@pytest.mark.parametrize("codec", Compression)
def test_a_batch_that_loses_records_keeps_its_offsets_and_its_codec(
    disk: SimulatedDisk, codec: Compression
) -> None:
    writer = writer_to(disk)
    writer.put((b"a", b"1"), (b"b", b"2" * 500), (b"c", b"3"), codec=codec, producer_id=7)
    writer.put((b"a", b"4"), (b"c", b"5"))
    writer.roll()
    before = batches_of(writer.log)
    compact(disk, writer.log)
    thinned, untouched = batches_of(writer.log)
    assert untouched.raw == before[1].raw
    assert records_in([thinned]) == records_in(before)[1:2]
    assert (thinned.base_offset, thinned.last_offset, thinned.record_count) == (0, 2, 1)
    assert (thinned.compression, thinned.partition_leader_epoch) == (codec, 3)
    assert (thinned.producer_id, thinned.base_sequence, thinned.last_sequence) == (7, 0, 2)
    assert thinned.max_timestamp_ms == START_MS + 1


def test_c3_a_tombstone_stays_for_delete_retention_ms_after_it_was_first_compacted(
    disk: SimulatedDisk,
) -> None:
    writer = writer_to(disk)
    writer.put((b"a", b"1"), (b"b", b"1"))
    writer.put((b"a", None), (b"c", b"2"))
    writer.roll()
    cleaned_ms = START_MS + 10 * DAY_MS
    dirty = compact(disk, writer.log, now_ms=cleaned_ms)
    assert offsets_of(writer.log) == [1, 2, 3]
    marked = batches_of(writer.log)[1]
    assert marked.has_delete_horizon
    assert marked.base_timestamp_ms == cleaned_ms + DAY_MS
    assert [record.timestamp_ms for record in records_in([marked])] == [START_MS, START_MS + 1]
    assert marked.max_timestamp_ms == START_MS + 1
    for later_ms, offsets in ((DAY_MS - 1, [1, 2, 3, 4]), (DAY_MS, [1, 3, 4, 5])):
        writer.put((b"%d" % later_ms, b"x"))
        writer.roll()
        dirty = compact(disk, writer.log, dirty, cleaned_ms + later_ms)
        assert offsets_of(writer.log) == offsets
    assert batches_of(writer.log)[1].base_timestamp_ms == cleaned_ms + DAY_MS


@pytest.mark.parametrize("timestamp_ms", [-1, 0, START_MS, 2**62])
def test_a_horizon_changes_no_timestamp(disk: SimulatedDisk, timestamp_ms: int) -> None:
    writer = writer_to(disk, compacted(message_timestamp_after_max_ms=2**63 - 1))
    writer.put((b"a", None), (b"b", b"1"), codec=Compression.ZSTD, timestamp_ms=timestamp_ms)
    writer.roll()
    before = records_in(batches_of(writer.log))
    compact(disk, writer.log)
    (marked,) = batches_of(writer.log)
    assert marked.has_delete_horizon
    assert records_in([marked]) == before


def test_a_horizon_that_would_not_leave_room_for_a_timestamp_is_not_set(
    disk: SimulatedDisk,
) -> None:
    config = compacted(delete_retention_ms=2**63 - 1 - START_MS)
    writer = writer_to(disk, config)
    writer.put((b"a", None), (b"b", b"1"), timestamp_ms=-(2**62))
    writer.put((b"b", b"2"))
    writer.roll()
    before = records_in(batches_of(writer.log))
    compact(disk, writer.log)
    after = batches_of(writer.log)
    assert not after[0].has_delete_horizon
    assert records_in(after) == [before[0], before[2]]


def test_a_horizon_leaves_the_time_of_the_log_as_it_is(disk: SimulatedDisk) -> None:
    config = compacted(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    writer = writer_to(disk, config)
    writer.put((b"a", None), (b"b", b"1"), (b"b", b"2"), timestamp_ms=START_MS + 5)
    writer.roll()
    before = records_in(batches_of(writer.log))
    compact(disk, writer.log)
    (marked,) = batches_of(writer.log)
    assert marked.has_delete_horizon
    assert marked.is_log_append_time
    assert records_in([marked]) == [before[0], before[2]]


def test_a_record_without_a_key_goes(disk: SimulatedDisk) -> None:
    log = writer_to(disk, TopicConfig()).log
    writer = Writer(log)
    writer.put((None, b"1"), (b"a", b"2"))
    writer.put((b"b", b"3"))
    writer.roll()
    log.config = compacted()
    compact(disk, log)
    assert offsets_of(log) == [1, 2]


def test_unreadable_records_stay_as_they_are(disk: SimulatedDisk) -> None:
    writer = writer_to(disk, TopicConfig())
    log = writer.log
    writer.put((b"a", b"1"))
    sound = batches_of(log)[0]
    nonsense = bytearray(sound.raw)
    nonsense[61] = 0x80  # a record length that does not match the record
    batch = type(sound)(memoryview(nonsense))
    batch.stamp_log_append_time(START_MS)
    batch.restamp(1, 3)
    log.append_as_follower(batch.raw, START_MS)
    writer.put((b"a", b"2"))
    writer.roll()
    log.config = compacted()
    compaction = Compaction(disk, log, _planned(log), START_MS)
    group = compaction.clean_next()
    assert group is not None
    take_over(log, compaction, group)
    assert compaction.counts.unreadable_batches == 1
    assert batches_of(log)[0].raw == nonsense
    assert [found.base_offset for found in batches_of(log)] == [1, 2]


def _planned(log: PartitionLog) -> CompactionPlan:
    planned = plan(log, 0, last_stable_offset(log), START_MS)
    assert planned is not None
    return planned


# -- transactions ---------------------------------------------------------------------------------


def test_the_records_of_an_aborted_transaction_go_and_replace_nothing(disk: SimulatedDisk) -> None:
    writer = writer_to(disk)
    writer.put((b"a", b"committed"))
    writer.put((b"a", b"aborted"), producer_id=1, is_transactional=True)
    writer.put((b"b", b"other"), producer_id=2, is_transactional=True)
    writer.end(1, ControlType.ABORT)
    writer.end(2)
    writer.put((b"z", b"1"), producer_id=1, is_transactional=True)
    writer.end(1)
    writer.roll()
    before = committed(writer.log)
    compact(disk, writer.log)
    assert [record.value for record in committed(writer.log)] == [b"committed", b"other", b"1"]
    assert committed(writer.log) == before
    assert 1 not in offsets_of(writer.log)
    assert state_of(writer.log) == {b"a": b"committed", b"b": b"other", b"z": b"1"}


def test_a_transaction_that_was_aborted_in_a_later_segment_replaces_nothing(
    disk: SimulatedDisk,
) -> None:
    writer = writer_to(disk)
    writer.put((b"a", b"committed"))
    writer.roll()
    writer.put((b"a", b"aborted"), producer_id=1, is_transactional=True)
    writer.roll()
    writer.end(1, ControlType.ABORT)  # in the active segment
    compact(disk, writer.log)
    assert state_of(writer.log) == {b"a": b"committed"}
    assert offsets_of(writer.log) == [0, 2]


def test_c4_a_marker_stays_until_nothing_of_its_transaction_is_left_and_then_for_a_while(
    disk: SimulatedDisk,
) -> None:
    writer = writer_to(disk)
    writer.put((b"a", b"1"), producer_id=1, is_transactional=True)
    marker = writer.end(1)
    writer.put((b"b", b"1"), producer_id=1, is_transactional=True)
    writer.end(1)
    writer.roll()
    now_ms = START_MS
    dirty = compact(disk, writer.log, now_ms=now_ms)
    assert marker in offsets_of(writer.log)  # a record of its transaction is there

    def compact_again(*pair: bytes) -> None:
        nonlocal dirty
        writer.put((pair[0], pair[1]))
        writer.roll()
        dirty = compact(disk, writer.log, dirty, now_ms)

    compact_again(b"a", b"2")  # removes the record, but the marker stays in the same pass
    assert 0 not in offsets_of(writer.log)
    assert not batches_of(writer.log)[0].has_delete_horizon
    compact_again(b"a", b"3")
    assert batches_of(writer.log)[0].base_offset == marker
    assert batches_of(writer.log)[0].base_timestamp_ms == now_ms + DAY_MS
    now_ms += DAY_MS - 1
    compact_again(b"a", b"4")
    assert marker in offsets_of(writer.log)
    now_ms += 1
    compact_again(b"a", b"5")
    assert marker not in offsets_of(writer.log)


def test_a_compacted_segment_still_says_which_transactions_were_aborted(
    disk: SimulatedDisk,
) -> None:
    writer = writer_to(disk)
    writer.put((b"a", b"1"), producer_id=1, is_transactional=True)
    writer.roll()
    writer.end(1, ControlType.ABORT)
    writer.put((b"b", b"2"), (b"b", b"3"))
    writer.roll()
    before = writer.log.aborted_transactions(0, 4)
    assert len(before) == 1
    dirty = compact(disk, writer.log)
    # The producer's last batch is there without its records, and belongs to its transaction.
    assert batches_of(writer.log)[0].record_count == 0
    assert writer.log.aborted_transactions(0, 4) == before
    writer.log.producers.expire(START_MS + 2 * DAY_MS)
    writer.put((b"b", b"4"))
    writer.roll()
    dirty = compact(disk, writer.log, dirty)
    writer.put((b"b", b"5"))
    writer.roll()
    compact(disk, writer.log, dirty)
    assert writer.log.aborted_transactions(0, 4) == []
    assert state_of(writer.log) == {b"b": b"5"}


def test_t2_the_state_of_producers_can_still_be_read_from_a_compacted_log(
    disk: SimulatedDisk,
) -> None:
    writer = writer_to(disk)
    for number in range(3):
        writer.put((b"a", b"%d" % number), (b"b", b"x"), producer_id=1)
        writer.put((b"a", b"%d" % number), producer_id=2, is_transactional=True)
        writer.end(2, ControlType.ABORT if number == 2 else ControlType.COMMIT)
    writer.put((b"a", b"last"), (b"b", b"last"))
    writer.roll()
    before = [entry._replace(coordinator_epoch=-1) for entry in writer.log.producers.producers()]
    compact(disk, writer.log)
    assert [batch.record_count for batch in data_batches(writer.log)] == [0, 0, 2]
    writer.log.producers.snapshots.remove_all()
    writer.log.reload_producers()
    after = [entry._replace(coordinator_epoch=-1) for entry in writer.log.producers.producers()]
    assert after == before
    assert last_stable_offset(writer.log) == writer.log.end_offset


def test_t2_no_old_snapshot_brings_a_transaction_back_whose_marker_is_gone(
    disk: SimulatedDisk,
) -> None:
    writer = writer_to(disk)
    writer.put((b"a", b"1"), producer_id=1, is_transactional=True)
    writer.roll()  # with a snapshot in which the transaction is open
    marker = writer.end(1)
    writer.log.producers.expire(START_MS + DAY_MS)
    dirty = 0
    for days in range(3):
        writer.put((b"a", b"%d" % days))
        writer.roll()
        dirty = compact(disk, writer.log, dirty, START_MS + days * DAY_MS)
    assert marker not in offsets_of(writer.log)
    snapshots = writer.log.producers.snapshots
    for offset in snapshots.offsets():
        if offset > marker:
            disk.flip_bit(snapshots.path(offset), 4, 0)
    writer.log.reload_producers()
    assert last_stable_offset(writer.log) == writer.log.end_offset


def test_the_marker_that_is_a_producers_last_word_stays(disk: SimulatedDisk) -> None:
    writer = writer_to(disk)
    writer.end(5)  # a marker with nothing before it
    writer.put((b"a", b"1"))
    writer.put((b"a", b"2"))
    writer.roll()
    dirty = compact(disk, writer.log)
    writer.put((b"a", b"3"))
    writer.roll()
    dirty = compact(disk, writer.log, dirty, START_MS + 10 * DAY_MS)
    assert batches_of(writer.log)[0].is_control
    writer.log.producers.expire(START_MS + 2 * DAY_MS)
    for now_ms in (START_MS + 10 * DAY_MS, START_MS + 11 * DAY_MS):
        writer.put((b"a", b"4"))
        writer.roll()
        dirty = compact(disk, writer.log, dirty, now_ms)
    assert not any(batch.is_control for batch in batches_of(writer.log))


def test_c4_nothing_is_compacted_from_the_last_stable_offset_on(disk: SimulatedDisk) -> None:
    writer = writer_to(disk)
    writer.put((b"a", b"1"))
    writer.put((b"a", b"2"))
    writer.roll()
    writer.put((b"a", b"3"))
    writer.put((b"a", b"4"), producer_id=1, is_transactional=True)
    writer.roll()
    writer.put((b"a", b"5"))
    writer.roll()
    assert compact(disk, writer.log) == 2
    assert offsets_of(writer.log) == [1, 2, 3, 4]
    writer.end(1)
    assert compact(disk, writer.log, 2) == 5
    assert offsets_of(writer.log) == [4, 5]


# -- segments -------------------------------------------------------------------------------------


def test_neighbours_become_one_segment_as_long_as_they_fit_into_one(disk: SimulatedDisk) -> None:
    writer = writer_to(disk, compacted(segment_bytes=1000))
    for number in range(12):
        writer.put((b"%d" % number, b"x" * 300))
    assert [segment.base_offset for segment in writer.log.segments] == [0, 2, 4, 6, 8, 10]
    writer.put(*((b"%d" % number, b"y") for number in range(9)))
    writer.roll()
    dirty = compact(disk, writer.log)
    row = list(writer.log.segments)
    assert all(segment.size_bytes <= 1000 for segment in row)
    writer.put((b"new", b"z"))
    writer.roll()
    compact(disk, writer.log, dirty)
    assert len(writer.log.segments) < len(row)
    assert offsets_of(writer.log) == [9, 10, 11, *range(12, 22)]


def test_offsets_that_are_too_far_apart_stay_in_two_segments(disk: SimulatedDisk) -> None:
    writer = writer_to(disk)
    writer.put((b"a", b"1"), (b"a", b"2"))
    near = batches_of(writer.log)[0]
    for offset in (2**31 - 2, 2**31):
        far = type(near)(memoryview(bytearray(near.raw)))
        far.restamp(offset, 3)
        writer.roll()
        writer.log.append_as_follower(far.raw, START_MS)
    writer.roll()
    assert compact(disk, writer.log) == 2**31 + 2
    assert [segment.base_offset for segment in writer.log.segments] == [0, 2**31, 2**31 + 2]
    assert offsets_of(writer.log) == [2**31 + 1]


def test_a_compacted_segment_ends_where_what_it_was_made_from_ended(disk: SimulatedDisk) -> None:
    writer = writer_to(disk, compacted(segment_bytes=300))
    for value in (b"1" * 100, b"2" * 100, b"3" * 100, b"4" * 100):
        writer.put((b"a", value))
    writer.roll()
    ends = [segment.end_offset() for segment in writer.log.segments]
    compact(disk, writer.log)
    assert [segment.end_offset() for segment in writer.log.segments] == ends
    assert offsets_of(writer.log) == [3]


def test_indexes_lead_to_every_batch(disk: SimulatedDisk) -> None:
    writer = writer_to(disk)
    for number in range(50):
        writer.put((b"%d" % (number % 30), b"x" * 50), timestamp_ms=START_MS + number)
    writer.roll()
    compact(disk, writer.log)
    segment = next(iter(writer.log.segments))
    assert segment.offset_index.entry_count > 5
    segment.offset_index.check(segment.size_bytes)
    segment.time_index.check(50)
    assert segment.greatest_timestamp == (START_MS + 49, 49)
    for batch in batches_of(writer.log):
        place = segment.find(batch.base_offset)
        assert place is not None
        assert place.base_offset == batch.base_offset


def test_a_segment_that_loses_nothing_is_not_written_anew(disk: SimulatedDisk) -> None:
    writer = writer_to(disk, compacted(segment_bytes=300))
    for number in range(3):
        writer.put((b"%d" % number, b"x" * 200))
    writer.roll()
    row = list(writer.log.segments)
    before = files_of(disk)
    assert compact(disk, writer.log) == 3
    assert list(writer.log.segments) == row
    assert files_of(disk) == before


def test_a_map_that_is_too_small_takes_several_rounds(disk: SimulatedDisk) -> None:
    writer = writer_to(disk)
    for number in range(40):
        writer.put(*((b"%d" % (number * 7 % 25 + extra), b"%d" % number) for extra in range(3)))
    writer.roll()
    wanted = state_of(writer.log)
    dirty, rounds = 0, 0
    while dirty < writer.log.end_offset:
        following = compact(disk, writer.log, dirty, dedupe_buffer_bytes=24 * 8)
        assert following > dirty
        dirty, rounds = following, rounds + 1
        assert state_of(writer.log) == wanted
    assert rounds > 5
    assert len(offsets_of(writer.log)) == len(wanted)


def test_a_tombstone_that_the_map_does_not_know_gets_no_horizon(disk: SimulatedDisk) -> None:
    writer = writer_to(disk)
    writer.put((b"a", b"1"))
    writer.put((b"b", None), (b"c", b"1"), (b"a", None))
    writer.roll()
    dirty = compact(disk, writer.log, dedupe_buffer_bytes=24 * 3)
    assert dirty == 2
    assert not any(batch.has_delete_horizon for batch in batches_of(writer.log))
    now_ms = START_MS + 5 * DAY_MS
    while dirty < 4:
        dirty = compact(disk, writer.log, dirty, now_ms, dedupe_buffer_bytes=24 * 3)
    assert offsets_of(writer.log) == [1, 2, 3]
    assert batches_of(writer.log)[0].base_timestamp_ms == now_ms + DAY_MS


# -- concurrent operations ------------------------------------------------------------------------


def test_readers_of_a_replaced_segment_read_on(disk: SimulatedDisk) -> None:
    writer = writer_to(disk)
    writer.put((b"a", b"1"))
    writer.put((b"a", b"2"))
    writer.roll()
    held = writer.log.read(0, 2, 10_000)
    before = held.read()
    compact(disk, writer.log)
    writer.log.remove_deleted(START_MS + DAY_MS)
    assert held.read() == before
    assert writer.log.read(0, 2, 10_000).read() != before
    assert not [name for name in disk.list_directory(DIRECTORY) if name.endswith(".deleted")]


def two_groups(disk: SimulatedDisk) -> tuple[Writer, Compaction]:
    writer = writer_to(disk, compacted(segment_bytes=300))
    for value in (b"1" * 200, b"2" * 200, b"3" * 200, b"4" * 200):
        writer.put((b"a", value))
    writer.roll()
    return writer, Compaction(disk, writer.log, _planned(writer.log), START_MS)


def test_a_segment_that_retention_takes_meanwhile_ends_the_compaction(disk: SimulatedDisk) -> None:
    writer, compaction = two_groups(disk)
    group = compaction.clean_next()
    assert group is not None
    writer.log.delete_segments(2, START_MS)
    with pytest.raises(AbandonedCompactionError):
        take_over(writer.log, compaction, group)
    with pytest.raises(AbandonedCompactionError):
        compaction.clean_next()
    assert not [name for name in disk.list_directory(DIRECTORY) if ".cleaned" in name]
    assert offsets_of(writer.log) == [2, 3]


@pytest.mark.parametrize("what", ["damaged", "offline"])
def test_nothing_is_replaced_in_a_log_that_went_bad_meanwhile(
    disk: SimulatedDisk, what: str
) -> None:
    writer, compaction = two_groups(disk)
    group = compaction.clean_next()
    assert group is not None
    segment = next(iter(writer.log.segments))
    if what == "damaged":
        segment.damage = (Damage(0, segment.size_bytes, 0, 1),)
    else:
        writer.log.take_offline(OSError("the disk is gone"))
    with pytest.raises(AbandonedCompactionError):
        take_over(writer.log, compaction, group)
    assert next(iter(writer.log.segments)) is segment


def test_a_full_disk_ends_the_compaction_and_changes_nothing(disk: SimulatedDisk) -> None:
    writer = writer_to(disk)
    for number in range(3):
        writer.put((b"%d" % number, b"x" * 10_000))
    writer.put((b"0", b"y"))
    writer.roll()
    before = files_of(disk)
    disk.capacity_bytes = sum(map(len, before.values())) + 5000
    compaction = Compaction(disk, writer.log, _planned(writer.log), START_MS)
    with pytest.raises(OSError, match="No space"):
        compaction.clean_next()
    assert files_of(disk) == before
    assert not writer.log.is_offline


def test_a_truncation_meanwhile_ends_the_compaction(disk: SimulatedDisk) -> None:
    writer, compaction = two_groups(disk)
    group = compaction.clean_next()
    assert group is not None
    writer.log.truncate_to(1)
    writer.put((b"b", b"new"))
    writer.roll()
    with pytest.raises(AbandonedCompactionError):
        take_over(writer.log, compaction, group)
    assert offsets_of(writer.log) == [0, 1]


def test_a_batch_that_has_rotted_ends_the_compaction_and_changes_nothing(
    disk: SimulatedDisk,
) -> None:
    _, compaction = two_groups(disk)
    before = files_of(disk)
    name = "00000000000000000002.log"
    disk.flip_bit(f"{DIRECTORY}/{name}", 100, 3)
    with pytest.raises(CorruptSegmentError, match="CRC"):
        compaction.clean_next()
    after = files_of(disk)
    del before[name], after[name]
    assert after == before


def test_the_pace_is_set_from_outside(disk: SimulatedDisk) -> None:
    writer, _ = two_groups(disk)
    paced: list[int] = []
    compaction = Compaction(disk, writer.log, _planned(writer.log), START_MS, pace=paced.append)
    before = list(writer.log.segments)
    read_bytes = sum(segment.size_bytes for segment in before)
    while (group := compaction.clean_next()) is not None:
        take_over(writer.log, compaction, group)
    new = [segment for segment in writer.log.segments if segment not in before]
    written_bytes = sum(segment.size_bytes for segment in new)
    assert len(new) == 3
    assert sum(paced) == 2 * read_bytes + written_bytes


def test_the_pace_function_can_end_the_compaction(disk: SimulatedDisk) -> None:
    writer, _ = two_groups(disk)
    before = files_of(disk)
    left = 6

    def stop(_: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt

    compaction = Compaction(disk, writer.log, _planned(writer.log), START_MS, pace=stop)
    with pytest.raises(KeyboardInterrupt):
        compaction.clean_next()
    assert files_of(disk) == before
