"""The store: each decision becomes durable, then is published, then gets its response."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from ottla.broker.metadata_store.embedded import metadata_log
from ottla.broker.metadata_store.embedded.metadata_log import MetadataLog
from ottla.broker.metadata_store.embedded.store import EmbeddedMetadataStore
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord, RemoveTopicRecord, TopicRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import uuid_to_text
from ottla.simulation.world.disk import SimulatedDisk
from ottla.wire.messages.delete_topics import DeleteTopicState
from tests.metadata_building import (
    LOG_DIR,
    create,
    new_topic,
    open_store,
    register,
    settle,
    tell,
    uuid_of,
)

DIRECTORY = f"{LOG_DIR}/__cluster_metadata-0"


class HeldExecutor(Executor):
    """Holds submitted work until the test releases it."""

    def __init__(self) -> None:
        self.held: list[tuple[Future[Any], Callable[..., Any]]] = []
        self.count = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        assert not args, "only flushes and checkpoints come here"
        assert not kwargs
        future: Future[Any] = Future()
        self.held.append((future, fn))
        self.count += 1
        return future

    def release(self) -> None:
        future, function = self.held.pop(0)
        future.set_result(function())


def tell_held(story: Callable[[EmbeddedMetadataStore, HeldExecutor], Any]) -> None:
    """Run a scenario in which the test controls the disk."""

    async def run() -> None:
        threads = HeldExecutor()
        store = open_store(SimulatedDisk(), threads=threads)
        registered = asyncio.ensure_future(register(store))
        await settle()
        threads.release()
        await registered
        threads.count = 0
        await story(store, threads)

    asyncio.run(run())


# -- across restarts ------------------------------------------------------------------------------


def test_a_first_start_begins_a_cluster_and_later_ones_find_it() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    assert store.image.cluster_id == store.identity.cluster_id == uuid_to_text(uuid_of(1))
    assert store.image.level_by_feature == {"metadata.version": 30, "transaction.version": 2}
    disk.crash("lose_all")
    assert open_store(disk).image == store.image


def test_acknowledged_decisions_survive_a_power_cut() -> None:
    disk = SimulatedDisk()
    images = []

    async def story(store: EmbeddedMetadataStore) -> None:
        assert await create(store, new_topic("a", 3, retention_ms="7"), 1) == 0
        assert await create(store, new_topic("b"), 2) == 0
        await store.execute(lambda c: c.delete_topics([DeleteTopicState(name="b")]))
        block = await store.execute(lambda c: c.allocate_producer_ids(0, 2))
        assert block.end == 1000
        images.append(store.image)

    tell(disk, story)
    disk.crash("lose_all")
    again = open_store(disk)
    assert again.image == images[0]
    assert set(again.image.topics) == {"a"}
    assert again.image.topic_settings("a") == {"retention.ms": "7"}


def test_unsynced_decisions_of_a_dead_process_are_synced_before_they_are_visible() -> None:
    disk = SimulatedDisk()
    open_store(disk)
    log = MetadataLog(disk, LOG_DIR, 0)
    log.append([TopicRecord(name="t", topic_id=uuid_of(5))], 0)
    disk.kill()
    assert set(open_store(disk).image.topics) == {"t"}
    disk.crash("lose_all")
    assert set(open_store(disk).image.topics) == {"t"}


def test_a_closed_store_has_flushed_everything_and_takes_no_more() -> None:
    disk = SimulatedDisk()

    async def story(store: EmbeddedMetadataStore) -> None:
        creating = asyncio.ensure_future(create(store, new_topic("a"), 1))
        await asyncio.sleep(0)
        await store.close()
        assert await creating == 0
        with pytest.raises(ApiError) as refused:
            await create(store, new_topic("b"), 2)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER

    tell(disk, story)
    disk.crash("lose_all")
    assert set(open_store(disk).image.topics) == {"a"}


# -- one decision ---------------------------------------------------------------------------------


def test_listeners_hear_of_a_change_before_its_answer() -> None:
    heard: list[object] = []

    async def story(store: EmbeddedMetadataStore) -> None:
        def on_change(image: ClusterImage, records: Any) -> None:
            assert store.image is image
            heard.append((sorted(image.topics), len(records)))

        store.subscribe(on_change)
        await create(store, new_topic("a", 2), 1)
        heard.append("answered")
        await create(store, new_topic("b"), 2)

    tell(SimulatedDisk(), story)
    assert heard == [(["a"], 3), "answered", (["a", "b"], 2)]


def test_an_error_of_the_decision_comes_through_and_writes_nothing() -> None:
    async def story(store: EmbeddedMetadataStore) -> None:
        before = store.image
        with pytest.raises(ApiError) as refused:
            await store.execute(lambda c: c.allocate_producer_ids(0, 99))
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert store.image is before
        assert await create(store, new_topic("a"), 1) == 0

    tell(SimulatedDisk(), story)


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (RemoveTopicRecord(topic_id=uuid_of(77)), "no topic has the id"),
        (TopicRecord(name="x" * 40_000, topic_id=uuid_of(5)), "40000 bytes of text are too many"),
    ],
)
def test_a_decision_that_makes_no_sense_never_gets_into_the_log(
    record: MetadataRecord, complaint: str
) -> None:
    disk = SimulatedDisk()

    async def story(store: EmbeddedMetadataStore) -> None:
        with pytest.raises(Exception, match=complaint):
            await store.execute(lambda _: Decision((record,), None))
        assert await create(store, new_topic("a"), 1) == 0

    tell(disk, story)
    assert set(open_store(disk).image.topics) == {"a"}


def test_a_decision_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "DECISION_BYTES_MAX", 1000)

    async def story(store: EmbeddedMetadataStore) -> None:
        with pytest.raises(ApiError) as refused:
            await create(store, new_topic("a", 100), 1)
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        assert await create(store, new_topic("a", 1), 1) == 0

    tell(SimulatedDisk(), story)


def test_durable_records_are_noted_down_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "RECORDS_PER_CHECKPOINT", 10)
    disk = SimulatedDisk()
    path = f"{DIRECTORY}/recovery-point-offset-checkpoint"

    async def story(store: EmbeddedMetadataStore) -> None:
        await create(store, new_topic("a", 3), 1)
        assert bytes(disk.map_file(path)).endswith(b" 2\n"), "as it was at the start"
        await create(store, new_topic("b", 8), 2)
        await settle()
        assert bytes(disk.map_file(path)).endswith(b" 16\n")

    tell(disk, story)


# -- several at once ------------------------------------------------------------------------------


def test_one_flush_serves_all_that_came_meanwhile() -> None:
    async def story(store: EmbeddedMetadataStore, threads: HeldExecutor) -> None:
        first = asyncio.ensure_future(create(store, new_topic("first"), 100))
        await settle()
        later = [
            asyncio.ensure_future(create(store, new_topic(f"t{number}"), number))
            for number in range(1, 10)
        ]
        await settle()
        threads.release()
        await settle()
        assert first.done()
        assert not any(task.done() for task in later), "their records came too late for it"
        threads.release()
        assert await asyncio.gather(*later) == [0] * 9
        assert threads.count == 2

    tell_held(story)


def test_only_the_next_decision_sees_a_decision_before_it_is_durable() -> None:
    async def story(store: EmbeddedMetadataStore, threads: HeldExecutor) -> None:
        heard: list[ClusterImage] = []
        store.subscribe(lambda image, _: heard.append(image))
        first = asyncio.ensure_future(create(store, new_topic("a"), 1))
        second = asyncio.ensure_future(create(store, new_topic("a"), 2))
        await settle()
        assert (store.image.topics, heard) == ({}, [])
        assert not second.done(), "its answer tells of a topic that could still be lost"
        threads.release()
        assert (await first, await second) == (0, ErrorCode.TOPIC_ALREADY_EXISTS)
        assert set(store.image.topics) == {"a"}
        assert threads.count == 1

    tell_held(story)


def test_each_decision_is_published_with_its_own_image() -> None:
    async def story(store: EmbeddedMetadataStore, threads: HeldExecutor) -> None:
        heard: list[list[str]] = []
        store.subscribe(lambda image, _: heard.append(sorted(image.topics)))
        tasks = [
            asyncio.ensure_future(create(store, new_topic(name), number))
            for number, name in enumerate("abc", 1)
        ]
        await settle()
        threads.release()
        await asyncio.gather(*tasks)
        assert heard == [["a"], ["a", "b"], ["a", "b", "c"]]

    tell_held(story)


def test_a_client_that_goes_away_does_not_take_its_decision_along() -> None:
    async def story(store: EmbeddedMetadataStore, threads: HeldExecutor) -> None:
        first = asyncio.ensure_future(create(store, new_topic("a"), 1))
        await settle()
        second = asyncio.ensure_future(create(store, new_topic("b"), 2))
        await settle()
        second.cancel()
        first.cancel()
        await settle()
        threads.release()
        await settle()
        threads.release()
        await settle()
        assert set(store.image.topics) == {"a", "b"}

    tell_held(story)


def test_closing_waits_for_the_disk() -> None:
    async def story(store: EmbeddedMetadataStore, threads: HeldExecutor) -> None:
        creating = asyncio.ensure_future(create(store, new_topic("a"), 1))
        await settle()
        closing = asyncio.ensure_future(store.close())
        await settle()
        assert not closing.done()
        threads.release()
        await closing
        assert await creating == 0

    tell_held(story)
