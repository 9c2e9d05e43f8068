"""The store after a disk failure, a bug in a decision, or damage to the log."""

import asyncio
import errno

import pytest

from ottla.broker.metadata_store.embedded import metadata_log
from ottla.broker.metadata_store.embedded.metadata_log import DamagedMetadataError, MetadataLog
from ottla.broker.metadata_store.embedded.store import EmbeddedMetadataStore
from ottla.broker.metadata_store.meta_properties import ForeignLogDirError
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import RemoveTopicRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind
from tests.metadata_building import LOG_DIR, create, new_topic, open_store, tell, uuid_of

DIRECTORY = f"{LOG_DIR}/__cluster_metadata-0"
LOG_FILE = f"{DIRECTORY}/{0:020d}.log"


# -- failures -------------------------------------------------------------------------------------


def test_a_full_disk_refuses_and_recovers_by_itself() -> None:
    disk = SimulatedDisk()

    async def story(store: EmbeddedMetadataStore) -> None:
        before = store.image
        disk.faults.fail_on(OperationKind.WRITE, LOG_FILE, errno.ENOSPC)
        with pytest.raises(ApiError) as refused:
            await create(store, new_topic("a"), 1)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert store.image is before
        disk.faults.heal()
        assert await create(store, new_topic("a"), 2) == 0
        assert store.image.topics["a"].topic_id == uuid_of(2)

    tell(disk, story)


def test_a_disk_that_is_full_just_before_the_flush_delays_what_was_decided() -> None:
    disk = SimulatedDisk()

    async def story(store: EmbeddedMetadataStore) -> None:
        heard: list[list[str]] = []
        store.subscribe(lambda image, _: heard.append(sorted(image.topics)))
        await create(store, new_topic("large", 100), 1)
        disk.faults.fail_on(OperationKind.WRITE, f"{DIRECTORY}/{0:020d}.index", errno.ENOSPC)
        for number in (2, 3):  # the second finds the topic, which is not yet durable
            with pytest.raises(ApiError) as refused:
                await create(store, new_topic("a", 100), number)
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert set(store.image.topics) == {"large"}
        disk.faults.heal()
        assert await create(store, new_topic("b"), 4) == 0
        assert heard == [["large"], ["a", "large"], ["a", "b", "large"]]

    tell(disk, story)


def test_a_disk_that_cannot_sync_is_never_asked_again() -> None:
    disk = SimulatedDisk()

    async def story(store: EmbeddedMetadataStore) -> None:
        heard: list[ClusterImage] = []
        store.subscribe(lambda image, _: heard.append(image))
        before = store.image
        disk.faults.fail_on(OperationKind.SYNC, LOG_FILE)
        tasks = [create(store, new_topic(name), number) for number, name in enumerate("ab", 1)]
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ApiError, ApiError]
        disk.faults.heal()
        done = len(disk.faults.operations)
        with pytest.raises(ApiError) as refused:
            await create(store, new_topic("c"), 3)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await store.close()
        assert len(disk.faults.operations) == done
        assert (store.image, heard) == (before, [])

    tell(disk, story)
    disk.crash("lose_all")
    assert open_store(disk).image.topics == {}


def test_a_failed_checkpoint_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "RECORDS_PER_CHECKPOINT", 1)
    disk = SimulatedDisk()

    async def story(store: EmbeddedMetadataStore) -> None:
        disk.faults.fail_on(
            OperationKind.CREATE, f"{DIRECTORY}/recovery-point-offset-checkpoint.tmp"
        )
        assert await create(store, new_topic("a"), 1) == 0
        assert await create(store, new_topic("b"), 2) == 0

    tell(disk, story)


def test_a_listener_that_raises_stops_the_store(caplog: pytest.LogCaptureFixture) -> None:
    def on_change(_: ClusterImage, __: object) -> None:
        raise ValueError("a bug")

    async def story(store: EmbeddedMetadataStore) -> None:
        store.subscribe(on_change)
        for number, name in enumerate("ab", 1):
            with pytest.raises(ApiError, match="a bug") as refused:
                await create(store, new_topic(name), number)
            assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR

    tell(SimulatedDisk(), story)
    assert [repr(one.exc_info[1]) for one in caplog.records if one.exc_info] == [
        "ValueError('a bug')"
    ]


# -- refused starts -------------------------------------------------------------------------------


def test_another_node_does_not_open_the_log() -> None:
    disk = SimulatedDisk()
    open_store(disk)
    with pytest.raises(ForeignLogDirError):
        open_store(disk, broker_id=1)


def test_no_cluster_begins_among_partitions_whose_metadata_is_lost() -> None:
    disk = SimulatedDisk()
    disk.make_directory(f"{LOG_DIR}/orders-0")
    with pytest.raises(DamagedMetadataError, match="/data/orders-0 is there, and no metadata"):
        open_store(disk)


def test_partitions_beside_a_log_that_knows_of_them_are_fine() -> None:
    disk = SimulatedDisk()
    image = open_store(disk).image
    disk.make_directory(f"{LOG_DIR}/orders-0")
    disk.kill()
    assert open_store(disk).image == image


def test_a_log_with_records_missing_is_not_guessed_at() -> None:
    disk = SimulatedDisk()
    open_store(disk)
    log = MetadataLog(disk, LOG_DIR, 0)
    log.append([RemoveTopicRecord(topic_id=uuid_of(5))], 0)
    disk.kill()
    with pytest.raises(DamagedMetadataError, match="missing: no topic has the id"):
        open_store(disk)
