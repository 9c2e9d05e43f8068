"""A replica moves between log dirs, with a crash at every disk operation."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

from ottla.model.identifiers import TopicPartition
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import CrashMoment, OperationKind, SimulatedCrash
from ottla.storage.files.directory_names import future_name
from ottla.storage.log.log import PartitionLog
from ottla.storage.log_dirs.log_dir_copy import LogDirCopy, finish_moves
from ottla.storage.log_dirs.log_dirs import LogDirs
from ottla.wire.records.control import ControlType
from tests.crashes.crash_points import CUTS, CrashPoint, Cut
from tests.crashes.invariants import as_batch, check_derived, end_of
from tests.log_building import NOW_MS, batch, contents, marker, stamped, tiny

PARTITION = TopicPartition("events", 0)
TOPIC_ID = bytes(range(16))
MARK, OTHER_MARK = b"m" * 16, b"o" * 16
FOLDERS = ("/a", "/b")


class Story:
    """A replica in /a, and the promises about it."""

    def __init__(self) -> None:
        self.dice = Random(0)
        self.disk = SimulatedDisk(self.dice)
        self.past: list[bytes] = []
        self.next_past: list[bytes] = []
        self.durable_end = 0
        self.log_start = 0

    def open(self) -> LogDirs:
        self.dirs = LogDirs(self.disk, FOLDERS)
        self.dirs.open(lambda _: tiny(), NOW_MS)
        finish_moves(self.dirs.dirs, OTHER_MARK)
        return self.dirs

    @property
    def log(self) -> PartitionLog:
        log = self.dirs.log_of(PARTITION)
        assert log is not None
        return log

    def append(self, data: memoryview, leader_epoch: int = 0) -> None:
        self.next_past = [*self.past, bytes(stamped(data, self.log.end_offset, leader_epoch))]
        self.log.append_as_follower(memoryview(bytearray(self.next_past[-1])), NOW_MS)
        self.past = self.next_past

    def flush(self) -> None:
        self.log.flush(NOW_MS)
        self.durable_end = end_of(self.past)

    def fall(self, cut: Cut) -> None:
        self.dice.seed(cut.seed)
        self.disk.kill() if cut.keep is None else self.disk.crash(cut.keep)


def prepare(story: Story) -> None:
    source = story.open().dirs[0]
    source.create(PARTITION, TOPIC_ID, tiny(), NOW_MS)
    story.append(batch(2, 500, producer_id=7, base_sequence=0))
    story.append(batch(1, 800, producer_id=8, base_sequence=0, is_transactional=True))
    story.append(marker(ControlType.ABORT, 8), 1)
    story.flush()
    source.checkpoint()
    story.append(batch(3, 700, producer_id=7, base_sequence=2), 1)


def begin(story: Story) -> LogDirCopy:
    source, target = story.dirs.dirs
    name = future_name(PARTITION, MARK)
    assert name is not None
    target.futures[PARTITION] = target.make(name, PARTITION, TOPIC_ID, tiny(), NOW_MS)
    return LogDirCopy(PARTITION, source, target)


def finish(story: Story, move: LogDirCopy, append: Callable[[], None] = lambda: None) -> None:
    """Do in one thread the work of several broker threads."""
    while (step := move.begin()) is not None:
        step.run(NOW_MS)
        append()
    move.copy.flush(NOW_MS)
    for write in move.checkpoint():
        write()
    assert move.can_swap()
    deleted = move.swap(NOW_MS, MARK)
    story.append(batch(1, 1000), 2)
    for write in move.finish():
        write()
    story.flush()
    move.source.remove_deleted(deleted)
    move.target.checkpoint()


def act(story: Story) -> None:
    more = iter([batch(1, 900), batch(2, 901)])

    def append() -> None:
        data = next(more, None)
        if data is not None:
            story.append(data, 1)
            story.flush()

    finish(story, begin(story), append)


def crash_points() -> list[CrashPoint]:
    story = Story()
    prepare(story)
    first = len(story.disk.faults.operations)
    act(story)
    operations = story.disk.faults.operations
    points = []
    for number in range(first, len(operations)):
        moments: list[CrashMoment] = ["before"]
        moments += ["during"] if operations[number].kind is OperationKind.WRITE else []
        moments += ["after"] if number + 1 == len(operations) else []
        points += [CrashPoint(number, moment, cut) for moment in moments for cut in CUTS[:6]]
    return points


def crashed() -> Iterator[tuple[Story, CrashPoint]]:
    for point in crash_points():
        story = Story()
        prepare(story)
        story.disk.faults.crash_at(point.number, point.moment)
        with suppress(SimulatedCrash):
            act(story)
        story.disk.faults.heal()
        story.fall(point.cut)
        yield story, point


def check(story: Story, cut: Cut) -> None:
    """Check that exactly one log exists, with all promises kept; a partial copy can continue."""
    dirs = story.open()
    assert all(folder.is_online for folder in dirs.dirs), [f.failure for f in dirs.dirs]
    assert sum(PARTITION in folder.hosted for folder in dirs.dirs) == 1
    found = contents(story.log)
    floor = end_of(story.past) if cut.keep is None else story.durable_end
    assert found == story.next_past[: len(found)]
    assert story.log.end_offset == end_of(found) >= floor
    check_derived(story.log, story.next_past)
    target = dirs.dirs[1]
    if PARTITION in target.futures:
        copied = target.futures[PARTITION].log
        assert contents(copied) == found[: len(contents(copied))]
        story.past = story.next_past = found
        finish(story, LogDirCopy(PARTITION, *dirs.dirs))
        assert dirs.dir_of(PARTITION) is target
        assert contents(story.log)[:-1] == found
        check_derived(story.log, story.past)


def test_a_crash_anywhere_leaves_one_good_copy() -> None:
    outcomes = set()
    for story, point in crashed():
        try:
            check(story, point.cut)
        except BaseException as error:
            operation = story.disk.faults.operations[point.number]
            error.add_note(f"crashed {point.moment} {operation} ({point})")
            raise
        folder = story.dirs.dir_of(PARTITION)
        assert folder is not None
        outcomes.add((folder.path, any("as well" in note for note in folder.notes)))
        before = contents(story.log)
        story.fall(point.cut)
        story.open()
        assert contents(story.log) == before[: len(contents(story.log))]
        assert end_of(contents(story.log)) >= story.durable_end
    assert {path for path, _ in outcomes} == {"/a", "/b"}
    assert as_batch(before[0]).base_offset == 0
