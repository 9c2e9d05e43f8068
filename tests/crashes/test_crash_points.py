"""A crash at every single disk operation of a log's methods: enumerated, not sampled."""

from ottla.storage.files.checkpoints import RECOVERY_POINT_FILE, read_offsets
from ottla.wire.records.control import ControlType
from tests.crashes.crash_points import Cut, Story, check_everywhere, check_recovery
from tests.log_building import FOLDER, NOW_MS, PARTITION, batch, marker, tiny


def nothing(story: Story) -> None:
    story.open()


def some_segments(story: Story) -> None:
    """Two leaders, an idempotent producer, one transaction aborted and one committed."""
    story.open()
    story.append(batch(2, 500, producer_id=7, base_sequence=0))
    story.append(batch(1, 900), leader_epoch=1)
    story.append(batch(1, 800, producer_id=8, base_sequence=0, is_transactional=True), 1)
    story.flush()
    story.append(marker(ControlType.ABORT, 8), 1)
    story.append(batch(3, 700, producer_id=7, base_sequence=2), 2)
    story.append(batch(1, 850, producer_id=9, base_sequence=0, is_transactional=True), 2)
    story.append(marker(ControlType.COMMIT, 9), 2)


def durable_segments(story: Story) -> None:
    some_segments(story)
    story.flush()


def test_an_append_and_a_roll() -> None:
    def act(story: Story) -> None:
        for number in range(5):
            story.append(batch(1, 600 + number), leader_epoch=number // 2)

    check_everywhere(nothing, act)


def test_a_truncation_within_the_last_segment() -> None:
    check_everywhere(some_segments, lambda story: story.truncate(9))


def test_a_truncation_across_segments() -> None:
    def act(story: Story) -> None:
        story.truncate(3)
        story.append(batch(1, 950), leader_epoch=3)
        story.flush()

    check_everywhere(durable_segments, act)


def test_a_log_that_begins_anew() -> None:
    check_everywhere(durable_segments, lambda story: story.restart(20))


def test_a_deletion_of_segments() -> None:
    def act(story: Story) -> None:
        story.delete_segments(2)
        story.folder.log.remove_deleted(1 << 60)

    check_everywhere(durable_segments, act)


def test_a_deletion_of_records() -> None:
    check_everywhere(durable_segments, lambda story: story.delete_records(5))


def test_a_flush() -> None:
    check_everywhere(some_segments, Story.flush)


def test_a_flush_just_before_a_roll() -> None:
    def act(story: Story) -> None:
        for number in range(7):
            # A new epoch makes the new segment's name durable before the old segment's content.
            story.append(batch(1, 1000 + number), leader_epoch=number)
            story.flush()

    check_everywhere(nothing, act, tiny(index_interval_bytes=1 << 20))


def test_a_clean_stop() -> None:
    check_everywhere(some_segments, Story.stop)


def test_a_first_start() -> None:
    check_everywhere(lambda _: None, Story.open)


def test_a_clean_start() -> None:
    def prepare(story: Story) -> None:
        some_segments(story)
        story.stop()
        story.disk.kill()

    check_everywhere(prepare, Story.open)


def test_a_checkpoint_is_the_old_or_the_new_one() -> None:
    """D6: either checkpoint is complete, and recovery works with both."""
    path = f"{FOLDER}/{RECOVERY_POINT_FILE}"

    def act(story: Story) -> None:
        story.folder.log.flush(NOW_MS)
        story.folder.write_recovery_point(story.folder.log.recovery_point)

    def check(story: Story, cut: Cut) -> None:
        assert read_offsets(story.disk, path) in ({PARTITION: 4}, {PARTITION: 10})
        check_recovery(story, cut)

    check_everywhere(some_segments, act, check=check)
