"""D3: after a crash anywhere in a recovery, the next recovery gives the same log."""

import pytest

from ottla.storage.recovery.log_recovery import PREALLOCATED_BYTES_MIN
from ottla.wire.records.control import ControlType
from tests.crashes.crash_points import KILL, Cut, Story, check_everywhere, check_recovery
from tests.crashes.invariants import knowledge
from tests.examples import some
from tests.log_building import (
    DIRECTORY,
    NOW_MS,
    LogFolder,
    batch,
    batches_of,
    contents,
    marker,
    stamped,
)

TORN_SEEDS = some(range(8), 4)


def half_durable(story: Story) -> None:
    """Some segments durable, some not, and a transaction aborted in each half."""
    story.open()
    story.append(batch(2, 500, producer_id=7, base_sequence=0))
    story.append(batch(1, 900, producer_id=8, base_sequence=0, is_transactional=True), 1)
    story.append(marker(ControlType.ABORT, 8), 1)
    story.append(batch(1, 300), 1)
    story.flush()
    story.append(batch(1, 950, producer_id=8, base_sequence=1, is_transactional=True), 2)
    story.append(batch(3, 400, producer_id=7, base_sequence=2), 2)
    story.append(marker(ControlType.ABORT, 8), 3)
    story.append(batch(1, 800), 3)


@pytest.mark.parametrize("seed", TORN_SEEDS)
def test_a_recovery_of_a_torn_log(seed: int) -> None:
    def prepare(story: Story) -> None:
        half_durable(story)
        story.fall(Cut("random", seed))

    undisturbed = Story()
    prepare(undisturbed)
    undisturbed.open()
    expected = knowledge(undisturbed.folder.log)

    def check(story: Story, cut: Cut) -> None:
        check_recovery(story, cut)
        again = LogFolder(story.disk, story.folder.config)
        again.start()
        assert knowledge(again.log) == expected, "D3"

    check_everywhere(prepare, Story.open, check=check)


def test_a_recovery_that_fences_off_damage() -> None:
    def prepare(story: Story) -> None:
        half_durable(story)
        story.disk.flip_bit(f"{DIRECTORY}/{4:020d}.log", 70, 3)
        story.fall(Cut("lose_all"))

    def check(story: Story, _: Cut) -> None:
        again = LogFolder(story.disk, story.folder.config)
        again.start()
        assert [d[2:4] for d in again.findings.damage] == [(4, 5)]

    check_everywhere(prepare, Story.open, check=check)


def test_a_recovery_that_closes_gaps_where_kafka_was_killed() -> None:
    def prepare(story: Story) -> None:
        story.open()
        log = story.folder.log
        for offset in (0, 3, 7):
            log.roll(NOW_MS, offset)
            log.append_as_follower(stamped(batch(), offset), NOW_MS)
        log.flush(NOW_MS)
        index = story.disk.open_file(f"{DIRECTORY}/{7:020d}.index")
        index.truncate(PREALLOCATED_BYTES_MIN)
        index.sync()
        story.fall(KILL)

    def check(story: Story, _: Cut) -> None:
        for _ in range(2):
            again = LogFolder(story.disk, story.folder.config)
            again.start()
            found = [b.base_offset for b in batches_of(again.log) if b.record_count]
            assert found == [0, 3, 7]
            story.disk.kill()

    check_everywhere(prepare, Story.open, check=check)


def test_what_a_recovery_dropped_does_not_come_back() -> None:
    def prepare(story: Story) -> None:
        story.open()
        for _ in range(7):
            story.append(batch())
        story.fall(Cut("keep_all"))
        story.disk.corrupt(f"{DIRECTORY}/{3:020d}.log", 100, bytes(50))
        story.open()
        story.log = story.next_log = contents(story.folder.log)
        assert story.folder.log.end_offset == 4
        story.fall(KILL)
        story.open()

    def act(story: Story) -> None:
        for number in range(4):
            story.append(batch(1, 600 + number, value=b"other"))

    check_everywhere(prepare, act)
