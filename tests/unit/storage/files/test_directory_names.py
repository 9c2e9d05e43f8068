"""The format of directory names in a log dir, and their length."""

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.storage.files.directory_names import (
    deleted_name,
    future_name,
    future_of,
    is_deleted,
    partition_of,
    stray_names,
)

MARK = bytes(range(16))
ORDERS = TopicPartition("or-ders.v_2", 12)
LONGEST = TopicPartition("n" * 249, 2_147_483_647)


def test_names_equal_the_names_of_kafka() -> None:
    mark = "000102030405060708090a0b0c0d0e0f"
    assert future_name(ORDERS, MARK) == f"or-ders.v_2-12.{mark}-future"
    assert deleted_name(ORDERS, MARK) == f"or-ders.v_2-12.{mark}-delete"
    assert next(stray_names(ORDERS, MARK)) == f"or-ders.v_2-12.{mark}-stray"


def test_each_name_has_one_meaning() -> None:
    future = future_name(ORDERS, MARK)
    assert future is not None
    assert partition_of(str(ORDERS)) == future_of(future) == ORDERS
    for name in (future, deleted_name(ORDERS, MARK), next(stray_names(ORDERS, MARK))):
        assert partition_of(name) is None
        assert is_deleted(name) == name.endswith("-delete")
    assert future_of(str(ORDERS)) is None


@pytest.mark.parametrize("name", ["lost+found", "keep-delete", "__cluster_metadata-0", ".lock"])
def test_other_files_are_left_alone(name: str) -> None:
    assert partition_of(name) is None
    assert future_of(name) is None
    assert not is_deleted(name)


def test_no_name_is_too_long_for_a_filesystem() -> None:
    for name in (deleted_name(LONGEST, MARK), next(stray_names(LONGEST, MARK))):
        assert len(name) == 255
        assert f"n-{LONGEST.partition}.{MARK.hex()}" in name
    assert is_deleted(deleted_name(LONGEST, MARK))
    assert future_name(LONGEST, MARK) is None
