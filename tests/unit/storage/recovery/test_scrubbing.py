"""Damage that a complete read of a segment finds, and its handling."""

import pytest

from ottla.environment.disk import File
from ottla.simulation.world import cold_reads
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.damage import Damage, DamageKind, damage_path, read_damage
from ottla.storage.log.log import PartitionLog
from ottla.storage.recovery.scrubbing import (
    BLOCK_BYTES,
    Target,
    closed_segments,
    fence_off,
    next_damage,
    suspect_segments,
)
from tests.log_building import (
    DIRECTORY,
    NOW_MS,
    READ_BYTES,
    LogFolder,
    batch,
    contents,
    fill,
    new_log,
    refusal,
    tiny,
)
from tests.old_messages import message

SIZE = len(batch())


def name(base_offset: int, suffix: str = "log") -> str:
    return f"{DIRECTORY}/{base_offset:020d}.{suffix}"


def filled(count: int = 10, **settings: int) -> LogFolder:
    folder = LogFolder(SimulatedDisk(), tiny(**settings))
    fill(folder.start(), count)
    return folder


def scrubbed(log: PartitionLog) -> list[Damage]:
    """Scrub all closed segments; return the damage that was found and fenced off."""
    found = []
    for first in closed_segments(log):
        target = first
        while (damage := next_damage(log.files.disk, cold_reads, target, lambda _: None)) and (
            fence_off(log, target, damage)
        ):
            found.append(damage)
            target = target.behind(damage)
    return found


def test_no_damage_is_found_in_sound_segments() -> None:
    log = filled().log
    assert [target.path for target in closed_segments(log)] == [name(0), name(3), name(6)]
    assert scrubbed(log) == []
    assert not log.segments.damaged_from(0)


@pytest.mark.parametrize("byte", [at for at in range(SIZE) if at not in range(12, 16)])
def test_a_flipped_bit_anywhere_in_a_batch_but_in_its_epoch_is_found(byte: int) -> None:
    folder = filled()
    before = contents(folder.log)
    folder.disk.flip_bit(name(3), SIZE + byte, byte % 8)
    assert scrubbed(folder.log) == [Damage(SIZE, 2 * SIZE, 4, 5)]
    assert scrubbed(folder.log) == [], "it is known"
    assert refusal(folder.log.read, 4, 10, READ_BYTES) is folder.log.segments.damage_code
    for offset in (0, 3, 5, 9):
        assert folder.log.read(offset, 10, 1).read() == before[offset]


def test_it_is_noted_beside_the_segment_and_known_after_a_restart() -> None:
    folder = filled()
    folder.disk.flip_bit(name(3), SIZE + 70, 0)
    scrubbed(folder.log)
    noted = read_damage(folder.disk, damage_path(name(3)))
    assert noted == (Damage(SIZE, 2 * SIZE, 4, 5, DamageKind.IN_USE),)
    folder.flush()
    folder.stop()
    log = LogFolder(folder.disk).start()
    (segment,) = log.segments.damaged_from(0)
    assert segment.damage == noted
    assert not log.segments.damaged_from(5), "what comes before the log's start is not missed"


def test_a_large_hole_ends_where_the_next_batch_is() -> None:
    folder = filled(600, segment_bytes=40_000)
    file = folder.disk.open_file(name(0))
    file.write_at(10 * SIZE - 5, bytes(300 * SIZE))
    (damage,) = scrubbed(folder.log)
    assert (damage.position, damage.offset) == (9 * SIZE, 9)
    assert damage.end_offset - 1 in range(309, 313), "the index has each second batch"


def test_several_are_found_one_after_the_other() -> None:
    folder = filled()
    for base_offset, number in ((0, 0), (0, 2), (6, 1)):
        folder.disk.flip_bit(name(base_offset), number * SIZE + 70, 3)
    assert [damage[2:4] for damage in scrubbed(folder.log)] == [(0, 1), (2, 3), (7, 8)]


def test_messages_of_before_kafka_0_11_are_no_loss() -> None:
    folder = filled()
    file = folder.disk.open_file(name(3))
    rest = file.read_at(2 * SIZE, SIZE)
    file.truncate(0)
    file.write_at(0, message(3) + message(4) + rest)
    (segment,) = [one for one in folder.log.segments if one.base_offset == 3]
    segment.size_bytes = file.size_bytes()
    (damage,) = scrubbed(folder.log)
    assert (damage[2:4], damage.kind) == ((3, 5), DamageKind.OLD_FORMAT)
    assert not folder.log.segments.damaged_from(0)


def test_segments_that_change_meanwhile_are_left_alone() -> None:
    folder = filled()
    log = folder.log
    folder.disk.flip_bit(name(3), 70, 0)
    target = list(closed_segments(log))[1]
    damage = next_damage(folder.disk, cold_reads, target, lambda _: None)
    assert damage is not None
    log.truncate_to(8)
    assert not fence_off(log, target, damage)
    target = list(closed_segments(log))[1]
    log.delete_segments(2, NOW_MS)
    assert not fence_off(log, target, damage)
    with pytest.raises(FileNotFoundError):
        next_damage(folder.disk, cold_reads, target, lambda _: None)


def test_a_read_that_meets_damage_makes_a_segment_suspect() -> None:
    folder = filled()
    folder.stop()
    folder.disk.corrupt(name(3), SIZE + 16, b"\x09")
    log = folder.start()
    refusal(log.read, 4, 10, READ_BYTES)
    assert [target.path for target in suspect_segments(log)] == [name(3)]
    assert suspect_segments(log) == []


class Cache:
    """A page cache that holds only the first block of each file."""

    def __init__(self) -> None:
        self.given_back: list[tuple[int, int]] = []

    def needs_thread(self, _file: File, position: int, _size_bytes: int) -> bool:
        return position >= BLOCK_BYTES

    def give_back(self, _file: File, position: int, size_bytes: int) -> None:
        self.given_back.append((position, position + size_bytes))


def test_only_what_was_cold_before_is_given_back_and_all_reads_are_paced() -> None:
    log = new_log(segment_bytes=3 * BLOCK_BYTES)
    fill(log, 40, value=b"v" * 100_000)
    paced: list[int] = []
    cache = Cache()
    target = Target.of(log, next(iter(log.segments)))
    assert next_damage(log.files.disk, cache, target, paced.append) is None
    assert sum(paced) >= target.size_bytes
    assert min(start for start, _ in cache.given_back) >= BLOCK_BYTES
    given = {at for start, end in cache.given_back for at in range(start, end, 4096)}
    assert len(given) * 4096 >= target.size_bytes - BLOCK_BYTES - 4096 * len(cache.given_back)
