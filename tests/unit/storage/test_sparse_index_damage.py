from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.indexes.offset_index import OffsetIndex
from ottla.storage.indexes.sparse_index import CorruptIndexError
from tests.examples import examples
from tests.unit.storage.sparse_indexes import (
    BASE,
    PATH,
    Kind,
    both,
    check,
    content,
    fill,
    opened,
    simulated_disk,
    write,
)


@pytest.fixture
def simulated() -> SimulatedDisk:
    return simulated_disk()


@both
@pytest.mark.parametrize("count", [0, 1, 2, 77])
def test_the_zeros_after_an_active_kafka_index_are_no_entries(
    kind: Kind, count: int, simulated: SimulatedDisk
) -> None:
    writer = opened(kind, simulated)
    fill(writer, count)
    writer.persist()
    entries = list(writer.entries())
    write(simulated, content(simulated) + bytes(kind.ENTRY_BYTES * 10_000))
    index = opened(kind, simulated)
    assert index.entry_count == count
    check(index)
    fill(index, 1, start=count)
    index.persist()
    assert list(opened(kind, simulated).entries())[:count] == entries
    assert len(content(simulated)) == (count + 1) * kind.ENTRY_BYTES


@both
def test_half_an_entry_is_corrupt_and_overwritten(kind: Kind, simulated: SimulatedDisk) -> None:
    writer = opened(kind, simulated)
    fill(writer, 3)
    writer.persist()
    write(simulated, content(simulated)[:-1])
    index = opened(kind, simulated)
    with pytest.raises(CorruptIndexError, match="whole entries"):
        check(index)
    assert index.entry_count == 2
    fill(index, 1, start=2)
    index.persist()
    check(index)
    assert list(index.entries()) == list(writer.entries())


@both
def test_a_file_that_is_shorter_than_it_was_is_corrupt(
    kind: Kind, simulated: SimulatedDisk
) -> None:
    writer = opened(kind, simulated)
    fill(writer, 3)
    writer.persist()
    index = opened(kind, simulated)
    assert index.entry_count == 3
    write(simulated, b"")
    with pytest.raises(CorruptIndexError):
        index.lookup(1)


@both
@settings(deadline=None, max_examples=examples(200))
@given(raw=st.binary(max_size=200), target=st.integers(-(2**40), 2**40))
def test_any_content_of_the_file_gives_one_error(kind: Kind, raw: bytes, target: int) -> None:
    disk = simulated_disk()
    write(disk, raw)
    index = opened(kind, disk)
    for ask in (index.lookup, index.check, index.truncate_to):
        with suppress(CorruptIndexError):
            ask(target)
    with suppress(CorruptIndexError):
        list(index.entries())
        index.persist()
    index.reset()
    fill(index, 3)
    check(index)


@both
@settings(deadline=None, max_examples=examples(200))
@given(flips=st.lists(st.tuples(st.integers(0, 95), st.integers(0, 7)), min_size=1))
def test_an_index_that_passes_its_check_searches_in_order(
    kind: Kind, flips: list[tuple[int, int]]
) -> None:
    disk = simulated_disk()
    writer = opened(kind, disk)
    fill(writer, 96 // kind.ENTRY_BYTES)
    writer.persist()
    for byte, bit in flips:
        disk.flip_bit(PATH, byte, bit)
    index = opened(kind, disk)
    try:
        check(index)
    except CorruptIndexError:
        return
    entries = list(index.entries())
    assert [entry[0] for entry in entries] == sorted({entry[0] for entry in entries})
    for entry in entries:
        assert index.lookup(entry[0]) == entry


@settings(deadline=None, max_examples=examples(150))
@given(seed=st.integers(0, 2**32), parts=st.lists(st.integers(1, 150), min_size=1, max_size=4))
def test_a_power_cut_leaves_the_first_entries_or_something_corrupt(
    seed: int, parts: list[int]
) -> None:
    disk = simulated_disk(Random(seed))
    writer = opened(OffsetIndex, disk)
    for part in parts:
        fill(writer, part, start=writer.entry_count)
        writer.persist()
    disk.sync_directory("/log")
    written = list(writer.entries())
    disk.crash("random")
    index = opened(OffsetIndex, disk)
    try:
        check(index)
    except CorruptIndexError:
        return
    # A single entry of zeros gives the segment's first position, which is correct too.
    entries = [entry for entry in index.entries() if entry != (BASE, 0)]
    assert entries == written[: len(entries)]
