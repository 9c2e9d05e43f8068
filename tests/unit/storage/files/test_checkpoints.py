import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.environment.disk import Disk
from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import KernelDisk
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import CrashMoment, OperationKind, SimulatedCrash
from ottla.storage.files import checkpoints
from ottla.storage.files.checkpoints import (
    CorruptCheckpointError,
    read_clean_shutdown,
    read_meta_properties,
    read_offsets,
    read_table,
    read_topic_id,
    remove_durably,
    write_atomically,
    write_offsets,
)
from tests.examples import examples

PATH = "/logs/checkpoint"
UUID_TEXT = "AAECAwQFBgcICQoLDA0ODw"
READERS: list[Callable[[Disk, str], object]] = [
    read_clean_shutdown,
    read_meta_properties,
    read_offsets,
    read_topic_id,
]


def simulated(seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed))
    disk.make_directory("/logs")
    disk.sync_directory("/")
    return disk


def holding(content: bytes) -> SimulatedDisk:
    disk = simulated()
    disk.create_file(PATH).write_at(0, content)
    return disk


def content(disk: Disk) -> bytes | None:
    return bytes(disk.map_file(PATH)) if disk.exists(PATH) else None


# -- replacing a file -----------------------------------------------------------------------------

OLD = bytes(range(256)) * 20
NEW = b"new" * 1000


def test_a_file_is_written_beside_and_then_renamed() -> None:
    disk = simulated()
    before = len(disk.faults.operations)
    write_atomically(disk, PATH, NEW)
    assert [operation.kind for operation in disk.faults.operations[before:]] == [
        OperationKind.CREATE,
        OperationKind.TRUNCATE,
        OperationKind.WRITE,
        OperationKind.SYNC,
        OperationKind.RENAME,
        OperationKind.SYNC_DIRECTORY,
    ]
    assert disk.list_directory("/logs") == ["checkpoint"]


def test_the_kernels_disk_replaces_files_too(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    for data in (OLD, NEW, b""):
        write_atomically(KernelDisk(), str(path), data)
        assert path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("old", [None, OLD])
@pytest.mark.parametrize("has_left_over", [False, True])
@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_a_crash_at_any_operation_leaves_the_old_content_or_the_new(
    old: bytes | None, has_left_over: bool, moment: CrashMoment
) -> None:
    def prepared(seed: int) -> SimulatedDisk:
        disk = simulated(seed)
        if old is not None:
            write_atomically(disk, PATH, old)
        if has_left_over:
            disk.create_file(PATH + ".tmp").write_at(0, b"from an earlier crash" * 500)
        return disk

    rehearsal = prepared(0)
    first = len(rehearsal.faults.operations)
    write_atomically(rehearsal, PATH, NEW)
    for number in range(first, len(rehearsal.faults.operations)):
        for seed in range(15):
            disk = prepared(seed)
            disk.faults.crash_at(number, moment)
            with pytest.raises(SimulatedCrash):
                write_atomically(disk, PATH, NEW)
            disk.crash("lose_all" if seed == 0 else "random")
            assert content(disk) in {old, NEW}
            write_atomically(disk, PATH, NEW)
            disk.crash("lose_all")
            assert content(disk) == NEW


@pytest.mark.parametrize(
    "kind",
    [
        OperationKind.CREATE,
        OperationKind.TRUNCATE,
        OperationKind.WRITE,
        OperationKind.SYNC,
        OperationKind.RENAME,
        OperationKind.SYNC_DIRECTORY,
    ],
)
def test_a_failing_disk_leaves_the_old_content_or_the_new(kind: OperationKind) -> None:
    disk = simulated()
    write_atomically(disk, PATH, OLD)
    disk.faults.fail_on(kind, error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        write_atomically(disk, PATH, NEW)
    disk.faults.heal()
    assert content(disk) in {OLD, NEW}
    write_atomically(disk, PATH, NEW)
    disk.crash("lose_all")
    assert content(disk) == NEW


def test_a_file_that_could_not_be_synced_is_not_used_again() -> None:
    disk = simulated()
    disk.faults.fail_on(OperationKind.SYNC)
    with pytest.raises(OSError, match="Input/output"):
        write_atomically(disk, PATH, NEW)
    assert disk.list_directory("/logs") == []


def test_a_removed_file_does_not_come_back() -> None:
    disk = simulated()
    write_atomically(disk, PATH, OLD)
    remove_durably(disk, PATH)
    remove_durably(disk, PATH)
    disk.crash("lose_all")
    assert content(disk) is None


# -- any file -------------------------------------------------------------------------------------


def test_a_missing_file_is_empty() -> None:
    assert [reader(simulated(), PATH) for reader in READERS] == [None, None, {}, None]


@pytest.mark.parametrize("reader", READERS)
def test_a_disk_that_cannot_read_is_no_corrupt_file(reader: Callable[..., object]) -> None:
    disk = holding(b"0\n0\n")
    disk.faults.fail_on(OperationKind.READ)
    with pytest.raises(OSError, match="Input/output"):
        reader(disk, PATH)


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_is_far_too_long_is_not_read(
    reader: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "TABLE_BYTES_MAX", 10)
    monkeypatch.setattr(checkpoints, "SMALL_FILE_BYTES_MAX", 10)
    with pytest.raises(CorruptCheckpointError, match="too many"):
        reader(holding(b"#" * 11), PATH)


GOOD = [
    b"0\n2\ntopic 0 15\nother 12 9\n",
    f"version: 0\ntopic_id: {UUID_TEXT}".encode(),
    b'{"version":0,"brokerEpoch":12}',
    f"#\ncluster.id=abc\ndirectory.id={UUID_TEXT}\nnode.id=1\nversion=1\n".encode(),
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid file with a part replaced, or random bytes."""
    good = bytearray(draw(st.sampled_from([*GOOD, b""])))
    start = draw(st.integers(0, len(good)))
    end = draw(st.integers(start, len(good)))
    good[start:end] = draw(st.binary(max_size=12))
    return bytes(good)


@settings(deadline=None, max_examples=examples(600))
@given(raw=damaged())
def test_any_content_of_a_file_gives_one_error(raw: bytes) -> None:
    disk = holding(raw)
    for reader in READERS:
        try:
            reader(disk, PATH)
        except CorruptCheckpointError as error:
            assert str(error).startswith(PATH)


# -- offsets --------------------------------------------------------------------------------------


def test_the_file_of_offsets_is_kafkas(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    offsets = {TopicPartition("orders", 0): 42, TopicPartition("a.b_c-d", 11): 2**63 - 1}
    write_offsets(KernelDisk(), str(path), offsets)
    assert path.read_bytes() == b"0\n2\norders 0 42\na.b_c-d 11 9223372036854775807\n"
    assert read_offsets(KernelDisk(), str(path)) == offsets
    write_offsets(KernelDisk(), str(path), {})
    assert path.read_bytes() == b"0\n0\n"
    assert read_offsets(KernelDisk(), str(path)) == {}


def test_an_empty_file_as_kafka_makes_it_holds_no_offsets() -> None:
    assert read_offsets(holding(b""), PATH) == {}


@settings(deadline=None)
@given(
    offsets=st.dictionaries(
        st.builds(
            TopicPartition,
            st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True),
            st.integers(0, 2**31 - 1),
        ),
        st.integers(0, 2**63 - 1),
    )
)
def test_offsets_come_back(offsets: dict[TopicPartition, int]) -> None:
    disk = simulated()
    write_offsets(disk, PATH, offsets)
    assert read_offsets(disk, PATH) == offsets


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ("1\n0\n", "line 1: '1' is not a known version"),
        ("x\n0\n", "line 1: 'x'"),
        ("\n", "line 1: ''"),
        ("0\n", "line 2: "),
        ("0\nx\n", "line 2: 0 entries"),
        ("0\n2\na 0 1\n", "line 2: 1 entries"),
        ("0\n1\na 0 1\nb 0 1\n", "line 2: 2 entries"),
        ("0\n-1\n", "line 2: "),
        ("0\n1\na 0\n", "line 3: 'a 0' has 2 words instead of 3"),
        ("0\n1\na b 0 1\n", "line 3: 'a b 0 1' has 4 words instead of 3"),
        ("0\n1\na -1 1\n", "line 3: 'a -1 1' needs a number from 0 to 2147483647 as word 2"),
        ("0\n1\na 2147483648 1\n", "line 3: "),
        ("0\n1\na 0 1_0\n", "line 3: "),
        ("0\n1\na 0 \u0661\n", "line 3: "),
        ("0\n1\na 0 9223372036854775808\n", "line 3: "),
        ("0\n2\na 0 1\na 0 2\n", "line 4: 'a 0 2' is the partition's second"),
        ("0\n1\na 0 12", "the last line has no end"),
    ],
)
def test_a_damaged_file_of_offsets_is_told_with_its_line(raw: str, complaint: str) -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        read_offsets(holding(raw.encode()), PATH)
    assert str(caught.value).startswith(PATH)
    assert complaint in str(caught.value)


def test_every_cut_of_a_table_is_noticed() -> None:
    for size in range(1, len(GOOD[0])):
        with pytest.raises(CorruptCheckpointError):
            read_table(holding(GOOD[0][:size]), PATH, words_per_line=3)
