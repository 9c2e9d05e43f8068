from pathlib import Path
from struct import pack

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.runtime.disk import KernelDisk
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.producers.producer_snapshot import (
    CorruptSnapshotError,
    ProducerEntry,
    ProducerSnapshots,
    decode_snapshot,
    encode_snapshot,
)

WITHOUT_BATCH = ProducerEntry(4000, 7, -1, -1, 0, 1_700_000_000_123, 12, -1)
IN_TRANSACTION = ProducerEntry(4001, 0, 41, 99, 9, 1_700_000_000_456, -1, 80)

# Written by hand from the description of Kafka's format.
BY_HAND = bytes.fromhex(
    "0001 f6a84cb7 00000002"
    "0000000000000fa0 0007 ffffffff ffffffffffffffff 00000000 0000018bcfe5687b 0000000c"
    "ffffffffffffffff"
    "0000000000000fa1 0000 00000029 0000000000000063 00000009 0000018bcfe569c8 ffffffff"
    "0000000000000050"
)

entries = st.builds(
    ProducerEntry,
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**40),
    st.integers(0, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.just(-1),
)
entry_lists = st.lists(entries, max_size=5, unique_by=lambda entry: entry.producer_id)


def sealed(content: bytes) -> bytes:
    """Return a snapshot with its correct CRC, computed by independent code."""
    return content[:2] + pack(">I", google_crc32c.value(content[6:])) + content[6:]


@pytest.fixture
def snapshots(tmp_path: Path) -> ProducerSnapshots:
    return ProducerSnapshots(KernelDisk(), str(tmp_path))


def test_a_snapshot_is_kafkas_byte_for_byte() -> None:
    assert encode_snapshot([WITHOUT_BATCH, IN_TRANSACTION]) == sealed(BY_HAND) == BY_HAND
    assert decode_snapshot(BY_HAND, 100) == [WITHOUT_BATCH, IN_TRANSACTION]


def test_a_log_without_producers_has_a_snapshot_of_ten_bytes() -> None:
    assert encode_snapshot([]) == sealed(pack(">hIi", 1, 0, 0))
    assert decode_snapshot(encode_snapshot([]), 0) == []


@given(entry_lists)
def test_written_properties_are_read(written: list[ProducerEntry]) -> None:
    assert decode_snapshot(encode_snapshot(written), 2**62) == written


@given(entry_lists, st.data())
def test_no_flipped_bit_goes_unnoticed(written: list[ProducerEntry], data: st.DataObject) -> None:
    content = bytearray(encode_snapshot(written))
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(content, 2**62)


@given(entry_lists, st.data())
def test_no_torn_snapshot_goes_unnoticed(written: list[ProducerEntry], data: st.DataObject) -> None:
    content = encode_snapshot(written)
    torn = content[: data.draw(st.integers(0, len(content) - 1))]
    for damaged in (torn, torn.ljust(len(content), b"\0"), content + b"\0"):
        if damaged != content:
            with pytest.raises(CorruptSnapshotError):
                decode_snapshot(damaged, 2**62)


@given(st.binary(max_size=200), st.integers(-3, 3))
def test_any_bytes_are_entries_or_corrupt(body: bytes, version: int) -> None:
    content = sealed(pack(">hI", version, 0) + body)
    try:
        decoded = decode_snapshot(content, 2**62)
    except CorruptSnapshotError:
        return
    assert encode_snapshot(decoded) == content


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_count_that_the_size_denies_is_corrupt(count: int) -> None:
    with pytest.raises(CorruptSnapshotError, match=f"{count} entries"):
        decode_snapshot(sealed(BY_HAND[:6] + pack(">i", count) + BY_HAND[10:]), 100)


def test_a_snapshot_that_is_ahead_of_its_offset_is_corrupt() -> None:
    for entry in (IN_TRANSACTION, WITHOUT_BATCH._replace(transaction_first_offset=99)):
        content = encode_snapshot([entry])
        assert decode_snapshot(content, 100) == [entry]
        with pytest.raises(CorruptSnapshotError, match="ahead"):
            decode_snapshot(content, 99)


def test_a_producer_or_a_transaction_that_is_there_twice_is_corrupt() -> None:
    for other_id, message in ((4001, "a producer twice"), (4002, "two transactions")):
        twice = encode_snapshot([IN_TRANSACTION, IN_TRANSACTION._replace(producer_id=other_id)])
        with pytest.raises(CorruptSnapshotError, match=message):
            decode_snapshot(twice, 100)


def test_the_file_is_named_by_its_offset_and_nothing_else_is_listed(
    snapshots: ProducerSnapshots, tmp_path: Path
) -> None:
    snapshots.write(123, [], sync=True)
    for name in ("00000000000000000007.snapshot.deleted", "7.snapshot", "00000000000000000007.log"):
        (tmp_path / name).touch()
    assert (tmp_path / "00000000000000000123.snapshot").read_bytes() == encode_snapshot([])
    assert snapshots.offsets() == [123]


def test_a_snapshot_replaces_a_longer_one_at_its_offset(snapshots: ProducerSnapshots) -> None:
    snapshots.write(100, [WITHOUT_BATCH, IN_TRANSACTION], sync=False)
    snapshots.write(100, [WITHOUT_BATCH], sync=False)
    assert snapshots.find_newest(0, 100).entries == [WITHOUT_BATCH]


def test_the_newest_whole_snapshot_within_the_log_is_found(snapshots: ProducerSnapshots) -> None:
    for offset in (100, 200, 300, 400, 500):
        snapshots.write(offset, [WITHOUT_BATCH._replace(producer_id=offset)], sync=False)
    Path(snapshots.path(400)).write_bytes(b"")
    Path(snapshots.path(300)).write_bytes(BY_HAND[:-1])
    found = snapshots.find_newest(100, 450)
    assert (found.offset, [entry.producer_id for entry in found.entries]) == (200, [200])
    assert [str(error).split()[1] for error in found.damaged] == ["400", "300"]
    assert snapshots.offsets() == [200]


def test_without_a_snapshot_everything_has_to_be_read(snapshots: ProducerSnapshots) -> None:
    assert snapshots.find_newest(17, 99) == (17, [], [])


def test_a_power_cut_does_not_bring_back_what_another_history_left() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/log")
    disk.sync_directory("/")
    snapshots = ProducerSnapshots(disk, "/log")
    for offset in (100, 200):
        snapshots.write(offset, [], sync=True)
    disk.crash("lose_all")
    assert snapshots.offsets() == [100, 200]
    snapshots.find_newest(0, 150)
    disk.crash("lose_all")
    assert snapshots.offsets() == [100]
    snapshots.remove_all()
    disk.crash("lose_all")
    assert snapshots.offsets() == []


def test_a_power_cut_does_not_bring_back_a_snapshot_that_was_misread() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/log")
    disk.sync_directory("/")
    snapshots = ProducerSnapshots(disk, "/log")
    for offset in (100, 200):
        snapshots.write(offset, [], sync=True)
    disk.open_file(snapshots.path(200)).write_at(0, b"damage")
    found = snapshots.find_newest(0, 250)
    assert (found.offset, len(found.damaged)) == (100, 1)
    disk.crash("lose_all")
    assert snapshots.offsets() == [100]


def test_snapshots_go_with_the_segments_before_an_offset(snapshots: ProducerSnapshots) -> None:
    for offset in (100, 200, 300):
        snapshots.write(offset, [], sync=False)
    snapshots.remove_before(200)
    assert snapshots.offsets() == [200, 300]
    snapshots.remove_all()
    assert snapshots.offsets() == []


@pytest.mark.parametrize(
    ("there", "base_offsets", "kept"),
    [
        ([100, 150, 200, 250, 300], [0, 100, 200], [100, 200, 300]),
        ([100, 150, 200], [0, 100, 200, 300], [100, 200]),
        ([100, 200], [], [200]),
        ([], [0], []),
    ],
)
def test_strays_go_but_not_the_one_that_a_shutdown_left_at_the_end(
    snapshots: ProducerSnapshots, there: list[int], base_offsets: list[int], kept: list[int]
) -> None:
    for offset in there:
        snapshots.write(offset, [], sync=False)
    snapshots.remove_strays(base_offsets)
    assert snapshots.offsets() == kept
