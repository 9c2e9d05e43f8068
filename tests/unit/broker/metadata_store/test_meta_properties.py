"""meta.properties: the cluster and the broker that own the log dirs."""

import errno

import pytest

from ottla.broker.metadata_store.meta_properties import ForeignLogDirError, Identity, claim_log_dirs
from ottla.model.identifiers import uuid_to_text
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.storage.files.checkpoints import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from tests.metadata_building import CountingRandomness, uuid_of

NEW_CLUSTER = uuid_to_text(uuid_of(1))


def claim(disk: SimulatedDisk, *paths: str, node_id: int = 7) -> Identity:
    return claim_log_dirs(disk, paths, node_id, CountingRandomness())


def mark(disk: SimulatedDisk, path: str, properties: MetaProperties) -> None:
    disk.make_directory(path)
    write_meta_properties(disk, f"{path}/meta.properties", properties)


def mark_of(disk: SimulatedDisk, path: str) -> MetaProperties | None:
    return read_meta_properties(disk, f"{path}/meta.properties")


def test_a_broker_that_finds_no_mark_begins_a_cluster() -> None:
    disk = SimulatedDisk()
    assert claim(disk, "/one", "/two") == Identity(NEW_CLUSTER, 7, (uuid_of(2), uuid_of(3)))
    assert mark_of(disk, "/one") == MetaProperties(NEW_CLUSTER, 7, uuid_of(2))
    assert mark_of(disk, "/two") == MetaProperties(NEW_CLUSTER, 7, uuid_of(3))


def test_a_mark_survives_a_power_cut_and_is_not_written_again() -> None:
    disk = SimulatedDisk()
    first = claim(disk, "/one")
    disk.crash("lose_all")
    written = len(disk.faults.operations)
    assert claim(disk, "/one") == first
    assert len(disk.faults.operations) == written


def test_a_new_folder_joins_those_that_are_marked() -> None:
    disk = SimulatedDisk()
    mark(disk, "/old", MetaProperties("cluster", 7, uuid_of(50)))
    assert claim(disk, "/new", "/old") == Identity("cluster", 7, (uuid_of(1), uuid_of(50)))
    assert mark_of(disk, "/new") == MetaProperties("cluster", 7, uuid_of(1))


def test_a_file_of_an_old_release_gets_its_missing_entries() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/old")
    disk.create_file("/old/meta.properties").write_at(0, b"version=0\ncluster.id=c\n")
    assert claim(disk, "/old") == Identity("c", 7, (uuid_of(1),))
    assert mark_of(disk, "/old") == MetaProperties("c", 7, uuid_of(1))


@pytest.mark.parametrize(
    ("second", "complaint"),
    [
        (MetaProperties("cluster", 8, uuid_of(51)), "/two belongs to node 8, not to 7"),
        (MetaProperties("other", 7, uuid_of(51)), "/one to cluster, /two to other"),
        (
            MetaProperties("cluster", 7, uuid_of(50)),
            "two of /one, /two, /three have the same directory.id",
        ),
    ],
)
def test_folders_that_do_not_belong_together_are_left_alone(
    second: MetaProperties, complaint: str
) -> None:
    disk = SimulatedDisk()
    mark(disk, "/one", MetaProperties("cluster", 7, uuid_of(50)))
    mark(disk, "/two", second)
    written = len(disk.faults.operations)
    with pytest.raises(ForeignLogDirError, match=complaint):
        claim(disk, "/one", "/two", "/three")
    assert len(disk.faults.operations) == written


def test_a_mark_that_cannot_be_read_is_not_replaced() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/one")
    disk.create_file("/one/meta.properties").write_at(0, b"version=9\n")
    with pytest.raises(ForeignLogDirError, match=r"cannot be read: /one/meta\.properties"):
        claim(disk, "/one")


def test_new_folders_are_marked_with_a_cluster_that_is_known() -> None:
    disk = SimulatedDisk()
    identity = claim_log_dirs(disk, ["/one"], 7, CountingRandomness(), "known")
    assert identity.cluster_id == "known"
    assert claim(disk, "/one").cluster_id == "known"


def test_folders_of_another_cluster_than_the_known_one_are_left_alone() -> None:
    disk = SimulatedDisk()
    mark(disk, "/one", MetaProperties("cluster", 7, uuid_of(50)))
    written = len(disk.faults.operations)
    with pytest.raises(ForeignLogDirError, match="belong to cluster cluster, not to known"):
        claim_log_dirs(disk, ["/one", "/two"], 7, CountingRandomness(), "known")
    assert len(disk.faults.operations) == written


def test_a_folder_that_cannot_be_read_is_left_out_and_not_touched() -> None:
    disk = SimulatedDisk()
    first = claim(disk, "/one", "/two")
    disk.faults.fail_on(under="/two/meta.properties", error=errno.EACCES)
    failed: list[str] = []
    identity = claim_log_dirs(
        disk,
        ["/one", "/two"],
        7,
        CountingRandomness(),
        on_failed=lambda path, _: failed.append(path),
    )
    assert identity == Identity(first.cluster_id, 7, first.directory_ids[:1])
    assert failed == ["/two"]
    with pytest.raises(PermissionError):
        claim(disk, "/one", "/two")


def test_a_folder_that_cannot_be_marked_is_left_out() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/two")
    disk.faults.fail_on(OperationKind.CREATE, under="/two")
    failed: list[str] = []
    identity = claim_log_dirs(
        disk,
        ["/one", "/two"],
        7,
        CountingRandomness(),
        on_failed=lambda path, _: failed.append(path),
    )
    assert identity == Identity(NEW_CLUSTER, 7, (uuid_of(2),))
    assert failed == ["/two"]


def test_without_any_folder_that_can_be_read_nothing_is_claimed() -> None:
    disk = SimulatedDisk()
    claim(disk, "/one", "/two")
    disk.faults.fail_on()
    with pytest.raises(OSError, match="/one"):
        claim_log_dirs(disk, ["/one", "/two"], 7, CountingRandomness(), on_failed=lambda *_: None)


def test_a_full_disk_has_not_failed_and_keeps_the_broker_from_starting() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/two")
    disk.faults.fail_on(OperationKind.WRITE, under="/two", error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        claim_log_dirs(disk, ["/one", "/two"], 7, CountingRandomness(), on_failed=lambda *_: None)
