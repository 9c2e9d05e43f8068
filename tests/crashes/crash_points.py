"""Crash a scenario at each of its disk operations, in every way, and check the log.

The scenario runs once to count its operations. Then it runs again for each operation and is
interrupted there: before the operation, in the middle of a write, and once after the whole run.
(A crash after an operation equals a crash before the next, with fewer promises to check.) Then
the process dies, or a power cut loses all, none or some of the unsynced writes. The log is opened
again, and must hold everything that was promised before the crash.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import NamedTuple

from ottla.model.settings.topic_config import TopicConfig
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import CrashMoment, Keep, OperationKind, SimulatedCrash
from tests.crashes.invariants import (
    as_batch,
    check_derived,
    check_prefix,
    common_prefix,
    end_of,
    knowledge,
)
from tests.log_building import NOW_MS, LogFolder, contents, stamped

SEEDS = range(6)


class Cut(NamedTuple):
    """The end of a run: the process dies, or the power is cut."""

    keep: Keep | None
    seed: int = 0


KILL = Cut(None)
CUTS = (KILL, Cut("lose_all"), Cut("keep_all"), *(Cut("random", seed) for seed in SEEDS))


class Story:
    """A log and the promises to its user.

    During a step a crash may lead back to either of two states: the log before the step, or the log
    after it.
    """

    def __init__(self, config: TopicConfig | None = None) -> None:
        self.dice = Random(0)
        self.disk = SimulatedDisk(self.dice)
        self.folder = LogFolder(self.disk, config)
        self.log: list[bytes] = []
        self.next_log: list[bytes] = []
        self.durable_end = 0
        self.durable_start = 0
        self.start = self.next_start = 0
        self.has_lost_power = False

    def open(self) -> None:
        self.folder.start()

    def append(self, data: memoryview, leader_epoch: int = 0) -> None:
        log = self.folder.log
        self.next_log = [*self.log, bytes(stamped(data, log.end_offset, leader_epoch))]
        log.append_as_follower(memoryview(bytearray(self.next_log[-1])), NOW_MS)
        self.log = self.next_log

    def flush(self) -> None:
        self.folder.flush()
        self.durable_end = end_of(self.log)

    def truncate(self, offset: int) -> None:
        self.next_log = [raw for raw in self.log if as_batch(raw).end_offset <= offset]
        self.durable_end = min(self.durable_end, end_of(self.next_log))
        self.folder.log.truncate_to(offset)
        self.log = self.next_log

    def restart(self, offset: int) -> None:
        self.next_log = []
        self.durable_end = 0
        self.next_start = max(offset, self.next_start)
        self.folder.log.restart_at(offset)
        self.log, self.start = [], offset

    def delete_segments(self, count: int) -> None:
        segments = list(self.folder.log.segments)
        self.next_start = max(self.next_start, segments[count].base_offset)
        self.folder.log.delete_segments(count, NOW_MS)
        self.start = self.next_start

    def delete_records(self, offset: int) -> None:
        self.next_start = max(self.next_start, offset)
        self.folder.delete_records(offset)
        self.start = self.durable_start = self.next_start

    def stop(self) -> None:
        self.folder.stop()
        self.durable_end = end_of(self.log)

    def fall(self, cut: Cut) -> None:
        self.dice.seed(cut.seed)
        if cut.keep is None:
            self.disk.kill()
        else:
            self.disk.crash(cut.keep)
            self.has_lost_power = True


Scenario = Callable[[Story], None]


class CrashPoint(NamedTuple):
    number: int
    moment: CrashMoment
    cut: Cut


def crash_points(prepare: Scenario, act: Scenario, config: TopicConfig | None) -> list[CrashPoint]:
    story = Story(config)
    prepare(story)
    first = len(story.disk.faults.operations)
    act(story)
    points = []
    operations = story.disk.faults.operations
    for number in range(first, len(operations)):
        moments: list[CrashMoment] = ["before"]
        if operations[number].kind is OperationKind.WRITE:
            moments.append("during")
        if number + 1 == len(operations):
            moments.append("after")
        points += [CrashPoint(number, moment, cut) for moment in moments for cut in CUTS]
    return points


def crashed(
    prepare: Scenario, act: Scenario, config: TopicConfig | None = None
) -> Iterator[tuple[Story, CrashPoint]]:
    """Yield the disk after each crash, before any log is opened on it."""
    points = crash_points(prepare, act, config)
    assert points, "a scenario without operations proves nothing"
    for point in points:
        story = Story(config)
        prepare(story)
        story.disk.faults.crash_at(point.number, point.moment)
        with suppress(SimulatedCrash):
            act(story)
        story.disk.faults.heal()
        story.fall(point.cut)
        yield story, point


def check_everywhere(
    prepare: Scenario,
    act: Scenario,
    config: TopicConfig | None = None,
    check: Callable[[Story, Cut], None] | None = None,
) -> None:
    """Crash at every point, and check all invariants afterwards."""
    for story, point in crashed(prepare, act, config):
        try:
            (check or check_recovery)(story, point.cut)
        except BaseException as error:
            operation = story.disk.faults.operations[point.number]
            error.add_note(f"crashed {point.moment} {operation} ({point})")
            raise


def check_recovery(story: Story, cut: Cut) -> None:
    """Open the log twice, then once more after a clean stop; check all of it each time."""
    again = LogFolder(story.disk, story.folder.config)
    again.start()
    check_opened(story, again)
    before, contents_before = knowledge(again.log), contents(again.log)
    story.fall(cut)
    once_more = LogFolder(story.disk, story.folder.config)
    once_more.start()
    assert knowledge(once_more.log) == before, "D3: the second recovery finds another log"
    once_more.stop()
    story.disk.crash("lose_all")
    cleanly = LogFolder(story.disk, story.folder.config)
    cleanly.start()
    assert cleanly.was_clean, "D5"
    assert not cleanly.findings.notes, "D5: nothing is to be mended after a clean stop"
    assert contents(cleanly.log) == contents_before, "D5"
    check_derived(cleanly.log, _past(story, cleanly))


def check_opened(story: Story, again: LogFolder) -> None:
    found = contents(again.log)
    start = again.log.log_start_offset
    assert story.durable_start <= start <= story.next_start, f"D2: the log starts at {start}"
    if not story.has_lost_power:
        assert start >= story.start, "D2: a dead process takes nothing along"
    kept = end_of(common_prefix(story.log, story.next_log))
    is_all_promised = again.was_clean or not story.has_lost_power
    floor = kept if is_all_promised else min(kept, story.durable_end)
    complaints = [check_prefix(found, past, start, floor) for past in (story.log, story.next_log)]
    assert None in complaints, f"D1, D2: {complaints}"
    assert again.log.end_offset == max(end_of(found), start), "D2"
    check_derived(again.log, _past(story, again))


def _past(story: Story, again: LogFolder) -> list[bytes]:
    """Return the past, before or after the step, that matches the log."""
    found = contents(again.log)
    last = found[-1] if found else None
    return story.log if last is None or last in story.log else story.next_log
