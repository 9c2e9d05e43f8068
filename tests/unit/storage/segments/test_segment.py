"""One segment: its batches, and its indexes."""

import errno

import pytest

from ottla.model.settings.topic_config import TopicConfig
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.storage.files.damage import Damage
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_batches import BatchPlace, CorruptSegmentError
from ottla.wire.records.batch import RecordBatch
from tests.log_building import NOW_MS, batch, stamped, tiny

PATH = "/00000000000000000100.log"
SIZE = len(batch())


def put(segment: Segment, offset: int, timestamp_ms: int = NOW_MS, record_count: int = 1) -> None:
    data = stamped(batch(record_count, timestamp_ms), offset)
    segment.append(data, [RecordBatch(data)])


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def reopened(disk: SimulatedDisk, config: TopicConfig | None = None) -> Segment:
    return Segment.open(OpenFiles(disk), "", 100, config or tiny(), NOW_MS)


@pytest.fixture
def segment(disk: SimulatedDisk) -> Segment:
    """Six batches of one record from offset 100 on; every second batch is in the index."""
    segment = Segment.create(OpenFiles(disk), "", 100, tiny(), NOW_MS)
    for number in range(6):
        put(segment, 100 + number, 1000 + number)
    return segment


def test_every_batch_is_found_by_each_of_its_offsets(segment: Segment) -> None:
    put(segment, 106, record_count=3)
    for number in range(6):
        place = BatchPlace(number * SIZE, SIZE, 100 + number, 100 + number)
        assert segment.find(100 + number) == place
    last = BatchPlace(6 * SIZE, segment.size_bytes - 6 * SIZE, 106, 108)
    assert [segment.find(offset) for offset in (106, 107, 108, 109)] == [last, last, last, None]
    assert segment.end_offset() == 109


def test_the_index_has_an_entry_for_about_every_interval(segment: Segment) -> None:
    assert list(segment.offset_index.entries()) == [(102, 2 * SIZE), (104, 4 * SIZE)]
    assert list(segment.time_index.entries()) == [(1002, 102), (1004, 104)]


def test_indexes_that_have_grown_are_written_out_by_the_next_append(
    segment: Segment, disk: SimulatedDisk
) -> None:
    index, offset = segment.offset_index, 106
    while not index.wants_persist:
        put(segment, offset, 1000 + offset)
        offset += 1
    assert not disk.exists(index.path)
    disk.faults.fail_on(OperationKind.CREATE)
    with pytest.raises(OSError, match="Input/output"):
        put(segment, offset)
    disk.faults.heal()
    assert segment.size_bytes == (offset - 100) * SIZE
    put(segment, offset)
    assert disk.exists(index.path)
    assert not index.wants_persist


def test_closing_notes_the_greatest_timestamp(segment: Segment, disk: SimulatedDisk) -> None:
    put(segment, 106, 900)
    segment.close_for_writing()
    assert reopened(disk).greatest_timestamp == (1005, 105)
    assert reopened(disk).first_timestamp_ms == 1000


def test_an_empty_segment_knows_no_time(disk: SimulatedDisk) -> None:
    segment = Segment.create(OpenFiles(disk), "", 100, tiny(), NOW_MS)
    assert segment.greatest_timestamp == (-1, 100)
    assert segment.first_timestamp_ms == -1
    assert segment.end_offset() == 100
    assert segment.find(100) is None


def test_creating_leaves_nothing_of_former_content(segment: Segment, disk: SimulatedDisk) -> None:
    segment.close_for_writing()
    again = Segment.create(OpenFiles(disk), "", 100, tiny(), NOW_MS)
    assert (again.size_bytes, again.end_offset(), again.offset_index.entry_count) == (0, 100, 0)
    assert reopened(disk).size_bytes == 0


def test_a_segment_that_cannot_be_made_leaves_no_file(disk: SimulatedDisk) -> None:
    disk.create_file("/00000000000000000100.log").write_at(0, b"left by somebody")
    disk.faults.fail_on(OperationKind.TRUNCATE)
    with pytest.raises(OSError, match="Input/output"):
        Segment.create(OpenFiles(disk), "", 100, tiny(), NOW_MS)
    assert disk.list_directory("/") == []


class TestUselessIndexes:
    """Index entries are used only if they agree with the batches."""

    @pytest.fixture(autouse=True)
    def closed(self, segment: Segment) -> None:
        segment.close_for_writing()

    @pytest.mark.parametrize("bit", range(16 * 8))
    def test_a_flipped_bit_in_the_offset_index_hides_nothing(
        self, disk: SimulatedDisk, bit: int
    ) -> None:
        disk.flip_bit("/00000000000000000100.index", bit // 8, bit % 8)
        for offset in range(100, 106):
            place = reopened(disk).find(offset)
            assert place is not None
            assert (place.base_offset, place.position) == (offset, (offset - 100) * SIZE)
        assert reopened(disk).end_offset() == 106

    def test_an_index_that_points_into_a_batch_is_made_anew_durably(
        self, disk: SimulatedDisk
    ) -> None:
        reopened(disk).file.sync()
        disk.corrupt("/00000000000000000100.index", 4, (2 * SIZE + 7).to_bytes(4, "big"))
        assert reopened(disk).find(103) is not None
        disk.crash("lose_all")
        entries = reopened(disk).offset_index.entries()
        assert list(entries) == [(102, 2 * SIZE), (104, 4 * SIZE)]
        assert reopened(disk).greatest_timestamp == (1005, 105)

    def test_an_index_that_points_behind_the_end_is_made_anew(self, disk: SimulatedDisk) -> None:
        disk.corrupt("/00000000000000000100.index", 12, (100 * SIZE).to_bytes(4, "big"))
        assert reopened(disk).end_offset() == 106

    def test_a_negative_entry_in_the_time_index_is_made_anew(self, disk: SimulatedDisk) -> None:
        disk.flip_bit("/00000000000000000100.timeindex", 24, 7)
        segment = reopened(disk)
        assert segment.greatest_timestamp == (1005, 105)
        assert segment.last_older(1003) == (1002, 102)
        assert list(reopened(disk).time_index.entries())[-1] == (1005, 105)

    def test_the_indexes_stay_if_it_is_the_batches_that_are_damaged(
        self, disk: SimulatedDisk
    ) -> None:
        disk.corrupt(PATH, 2 * SIZE + 8, b"\xff")
        with pytest.raises(CorruptSegmentError):
            reopened(disk).find(103)
        assert list(reopened(disk).offset_index.entries()) == [(102, 2 * SIZE), (104, 4 * SIZE)]
        place = reopened(disk).find(105)
        assert place is not None

    def test_batches_whose_offsets_cannot_be_right_make_no_index(self, disk: SimulatedDisk) -> None:
        disk.flip_bit("/00000000000000000100.index", 8, 7)
        for flipped in (0, 7):
            disk.flip_bit(PATH, SIZE + flipped, 2)
            with pytest.raises(CorruptSegmentError):
                reopened(disk).find(103)
            disk.flip_bit(PATH, SIZE + flipped, 2)
        assert reopened(disk).find(103) is not None


class TestUnreadableBatches:
    @pytest.mark.parametrize(
        ("at", "content"),
        [(8, b"\xff"), (8, b"\x7f"), (8, bytes(4)), (16, b"\x01"), (23, b"\xff")],
        ids=["negative length", "long", "short", "old magic", "negative delta"],
    )
    def test_a_header_that_cannot_be_right_is_an_error_and_no_place(
        self, segment: Segment, disk: SimulatedDisk, at: int, content: bytes
    ) -> None:
        segment.close_for_writing()
        disk.corrupt(PATH, SIZE + at, content)
        again = reopened(disk)
        assert again.find(100) is not None
        with pytest.raises(CorruptSegmentError) as error:
            again.find(101)
        assert error.value.position == SIZE
        with pytest.raises(CorruptSegmentError):
            list(again.batches(0))

    def test_a_file_that_ends_inside_a_header_is_an_error(
        self, segment: Segment, disk: SimulatedDisk
    ) -> None:
        disk.create_file(PATH).truncate(5 * SIZE + 20)
        again = reopened(disk)
        with pytest.raises(CorruptSegmentError):
            list(again.places(0))
        with pytest.raises(CorruptSegmentError):
            list(again.batches(0))
        assert segment.base_offset == 100


class TestCutting:
    def test_truncated_batches_are_in_no_index(self, segment: Segment) -> None:
        segment.truncate(3 * SIZE, 103)
        assert (segment.size_bytes, segment.end_offset()) == (3 * SIZE, 103)
        assert list(segment.offset_index.entries()) == [(102, 2 * SIZE)]
        assert segment.greatest_timestamp == (1002, 102)
        put(segment, 103, 7)
        assert segment.find(103) == BatchPlace(3 * SIZE, SIZE, 103, 103)

    def test_the_cut_is_durable(self, segment: Segment, disk: SimulatedDisk) -> None:
        segment.file.sync()
        disk.sync_directory("/")
        segment.truncate(3 * SIZE, 103)
        disk.crash("lose_all")
        assert reopened(disk).size_bytes == 3 * SIZE

    def test_a_useless_index_is_no_obstacle(self, segment: Segment, disk: SimulatedDisk) -> None:
        segment.close_for_writing()
        disk.flip_bit("/00000000000000000100.index", 8, 7)
        again = reopened(disk)
        again.truncate(3 * SIZE, 103)
        assert again.greatest_timestamp == (1002, 102)
        assert again.find(102) is not None

    def test_the_boundary_is_where_the_first_batch_begins_that_goes(self, segment: Segment) -> None:
        put(segment, 106, record_count=4)
        assert segment.boundary(103) == (3 * SIZE, 103)
        assert segment.boundary(108) == (6 * SIZE, 106)
        assert segment.boundary(120) == (segment.size_bytes, 110)
        put(segment, 115)
        assert segment.boundary(113) == (segment.size_bytes - SIZE, 110)
        assert segment.boundary(100) == (0, 100)


class TestDamage:
    DAMAGE = Damage(SIZE, 3 * SIZE, 101, 103)

    def test_damaged_ranges_are_skipped(self, segment: Segment) -> None:
        segment.fence_off(self.DAMAGE)
        assert [p.base_offset for p in segment.places(0)] == [100, 103, 104, 105]
        assert [b.base_offset for b in segment.batches(0)] == [100, 103, 104, 105]

    def test_damage_at_the_end_counts_for_where_the_segment_ends(self, segment: Segment) -> None:
        segment.fence_off(Damage(5 * SIZE, 6 * SIZE, 105, 109))
        assert segment.end_offset() == 109

    def test_a_cut_before_it_takes_it_away_with_its_note(
        self, segment: Segment, disk: SimulatedDisk
    ) -> None:
        segment.fence_off(self.DAMAGE)
        segment.truncate(SIZE, 101)
        assert segment.damage == ()
        assert not disk.exists("/00000000000000000100.damage")
        put(segment, 101)
        assert segment.find(101) == BatchPlace(SIZE, SIZE, 101, 101)

    def test_a_cut_behind_it_leaves_it(self, segment: Segment) -> None:
        segment.fence_off(self.DAMAGE)
        segment.truncate(4 * SIZE, 104)
        assert segment.damage == (self.DAMAGE,)

    def test_a_cut_inside_it_is_made_where_it_begins(self, segment: Segment) -> None:
        segment.fence_off(self.DAMAGE)
        assert segment.boundary(102) == (SIZE, 101)
        assert segment.boundary(101) == (SIZE, 101)
        assert segment.boundary(103) == (3 * SIZE, 103)
        assert segment.boundary(104) == (4 * SIZE, 104)

    def test_its_note_goes_with_the_segment(self, segment: Segment, disk: SimulatedDisk) -> None:
        segment.fence_off(self.DAMAGE)
        segment.close_for_writing()
        segment.remove()
        assert disk.list_directory("/") == []

    def test_a_segment_that_is_deleted_later_leaves_no_note_behind(
        self, segment: Segment, disk: SimulatedDisk
    ) -> None:
        segment.fence_off(self.DAMAGE)
        segment.close_for_writing()
        segment.rename(".deleted")
        assert all(name.endswith(".deleted") for name in disk.list_directory("/"))
        segment.remove()
        assert disk.list_directory("/") == []


class TestMakingIndexesAnew:
    def test_until_they_are_kept_they_are_missing(
        self, segment: Segment, disk: SimulatedDisk
    ) -> None:
        segment.close_for_writing()
        segment.rebuild_indexes()
        names = disk.list_directory("/")
        assert "00000000000000000100.index" not in names
        assert "00000000000000000100.timeindex" not in names
        segment.keep_rebuilt()
        assert disk.list_directory("/") == [
            f"00000000000000000100.{suffix}" for suffix in ("index", "log", "timeindex")
        ]

    def test_they_are_as_they_were(self, segment: Segment, disk: SimulatedDisk) -> None:
        segment.close_for_writing()
        before = {n: bytes(disk.map_file(f"/{n}")) for n in disk.list_directory("/")}
        segment.rebuild_indexes()
        segment.rebuild_indexes()
        segment.keep_rebuilt()
        assert {n: bytes(disk.map_file(f"/{n}")) for n in disk.list_directory("/")} == before

    def test_kept_they_survive_a_power_cut(self, segment: Segment, disk: SimulatedDisk) -> None:
        segment.file.sync()
        segment.rebuild_indexes()
        segment.keep_rebuilt()
        disk.crash("lose_all")
        assert reopened(disk).offset_index.entry_count == 2
        assert reopened(disk).greatest_timestamp == (1005, 105)


def test_half_a_batch_that_cannot_be_cut_off_is_no_full_disk(
    segment: Segment, disk: SimulatedDisk
) -> None:
    """The caller would take ENOSPC for a refusal that left the file unchanged."""
    disk.faults.fail_on(OperationKind.WRITE, error=errno.ENOSPC)
    disk.faults.fail_on(OperationKind.TRUNCATE, error=errno.ENOSPC)
    added = RecordBatch(stamped(batch(), 106))
    with pytest.raises(OSError, match="half a batch") as raised:
        segment.append(added.raw, [added])
    assert raised.value.errno == errno.EIO
