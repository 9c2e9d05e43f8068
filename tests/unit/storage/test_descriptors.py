"""Without a free descriptor a call is refused, and the log stays online."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.topic_config import TopicConfig
from ottla.runtime.disk import KernelDisk
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.storage.log.log import PartitionLog
from ottla.storage.log_dirs.log_dirs import LogDirs
from tests.descriptors import no_more_descriptors
from tests.log_building import NOW_MS, LogFolder, batch, contents, tiny

TOPIC_ID = b"sixteen bytes id"
RECORDS = 10
PARTITION = TopicPartition("orders", 0)


def fill(log: PartitionLog) -> None:
    """Append until the segment has been rolled."""
    for _ in range(RECORDS):
        log.append_as_leader(batch(), 0, NOW_MS)


def flush(log: PartitionLog) -> None:
    log.flush(NOW_MS)


@pytest.mark.parametrize("act", [fill, flush])
def test_a_log_goes_on_when_there_are_descriptors_again(
    tmp_path: Path, act: Callable[[PartitionLog], None]
) -> None:
    folder = LogFolder(KernelDisk(), tiny(), folder=str(tmp_path))
    log = folder.start()
    log.append_as_leader(batch(), 0, NOW_MS)
    with no_more_descriptors(), pytest.raises(ApiError) as refused:
        act(log)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.is_offline
    assert log.has_room, "that is another matter"
    while log.end_offset < RECORDS:
        log.append_as_leader(batch(), 0, NOW_MS)
    log.flush(NOW_MS)
    assert log.recovery_point == RECORDS
    assert len(contents(log)) == RECORDS


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_is_used_up_for_a_while_takes_no_folder_offline(error: int) -> None:
    disk = SimulatedDisk()
    folders = LogDirs(disk, ["/a"])
    folders.open(lambda _: TopicConfig(), now_ms=0)
    disk.faults.fail_on(OperationKind.CREATE, error=error)
    with pytest.raises(ApiError, match="KAFKA_STORAGE_ERROR"):
        folders.create(PARTITION, TOPIC_ID, TopicConfig(), now_ms=0)
    folders.checkpoint()
    disk.faults.heal()
    assert folders.dirs[0].is_online
    assert folders.create(PARTITION, TOPIC_ID, TopicConfig(), now_ms=0).end_offset == 0


def test_a_log_that_cannot_be_opened_for_want_of_descriptors_is_opened_later() -> None:
    disk = SimulatedDisk()
    folders = LogDirs(disk, ["/a"])
    folders.open(lambda _: TopicConfig(), now_ms=0)
    folders.create(PARTITION, TOPIC_ID, TopicConfig(), now_ms=0).append_as_leader(batch(), 0, 0)
    folders.close(now_ms=0, broker_epoch=0)
    disk.faults.fail_on(OperationKind.READ, f"/a/{PARTITION}/{0:020d}.log", errno.EMFILE)
    again = LogDirs(disk, ["/a"])
    again.open(lambda _: TopicConfig(), now_ms=0)
    assert again.dirs[0].is_online
    assert list(again.dirs[0].unopened) == [PARTITION]
    disk.faults.heal()
    assert again.dirs[0].reopen(PARTITION, TopicConfig(), now_ms=0).end_offset == 1
