"""A restart replays the same image, after any sequence of decisions."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.metadata_store.embedded.store import EmbeddedMetadataStore
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord
from ottla.model.settings.settings import ConfigOperation
from ottla.runtime.disk import KernelDisk
from ottla.simulation.world.disk import SimulatedDisk
from ottla.wire.messages.create_partitions import CreatePartitionsTopic
from ottla.wire.messages.delete_topics import DeleteTopicState
from ottla.wire.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from tests.examples import examples
from tests.metadata_building import (
    CountingRandomness,
    create,
    new_broker,
    new_topic,
    open_store,
    register,
    uuid_of,
)

Decide = Callable[[Controller], Decision[MetadataRecord, Any]]
NAMES = st.sampled_from(["a", "b", "c.d", "c_d", "e.f", "__x"])
_FIRST_ID = 10_000


def creation(dice: CountingRandomness, name: str, partitions: int, setting: str) -> Decide:
    topic = new_topic(name, partitions, retention_ms=setting)
    return lambda c: c.create_topics(
        [topic], topic_ids=[uuid_of(_FIRST_ID + int.from_bytes(dice.uuid(), "big"))], start=0
    )


def deletion(name: str) -> Decide:
    return lambda c: c.delete_topics([DeleteTopicState(name=name)])


def growth(name: str, count: int) -> Decide:
    return lambda c: c.create_partitions(
        [CreatePartitionsTopic(name=name, count=count, assignments=None)], start=1
    )


def alteration(kind: int, name: str, operation: int, setting: str, value: str | None) -> Decide:
    config = AlterableConfig(name=setting, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    return lambda c: c.incremental_alter_configs([resource])


def allocation() -> Decide:
    return lambda c: c.allocate_producer_ids(0, c.image.brokers[0].broker_epoch)


def registration(number: int) -> Decide:
    return lambda c: c.register_broker(
        new_broker(number, uuid_of(number + 1), rack=f"r{number % 2}")
    )


def decisions(dice: CountingRandomness) -> st.SearchStrategy[list[Decide]]:
    one = st.one_of(
        st.builds(creation, st.just(dice), NAMES, st.integers(0, 5), st.sampled_from(["1", "x"])),
        st.builds(deletion, NAMES),
        st.builds(growth, NAMES, st.integers(1, 9)),
        st.builds(
            alteration,
            st.just(2),
            NAMES,
            st.sampled_from(ConfigOperation),
            st.sampled_from(["cleanup.policy", "flush.ms"]),
            st.sampled_from(["compact", "7", None]),
        ),
        st.builds(
            alteration,
            st.just(4),
            st.sampled_from(["", "0", "3"]),
            st.sampled_from(ConfigOperation),
            st.sampled_from(["log.cleanup.policy", "log.retention.ms"]),
            st.sampled_from(["delete", "9", None]),
        ),
        st.builds(allocation),
        st.builds(registration, st.integers(0, 3)),
    )
    return st.lists(one, max_size=25)


async def lead_life(
    store: EmbeddedMetadataStore, steps: list[Decide], at_once: int
) -> ClusterImage:
    """Execute the decisions, this many concurrently."""
    heard: list[ClusterImage] = []
    store.subscribe(lambda image, _: heard.append(image))
    await register(store)
    for first in range(0, len(steps), at_once):
        await asyncio.gather(*map(store.execute, steps[first : first + at_once]))
    assert store.image is heard[-1]
    assert [image.end_offset for image in heard] == sorted({image.end_offset for image in heard})
    return store.image


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), at_once=st.integers(1, 4))
def test_replaying_the_log_leads_to_the_same_image(data: st.DataObject, at_once: int) -> None:
    disk, dice = SimulatedDisk(), CountingRandomness()
    for _ in range(2):
        steps = data.draw(decisions(dice))
        store = open_store(disk, randomness=dice)
        before = asyncio.run(lead_life(store, steps, at_once))
        disk.crash("lose_all")
        assert open_store(disk).image == before
        check_indexes(before)
        disk.kill()


def check_indexes(image: ClusterImage) -> None:
    assert {topic.topic_id: topic for topic in image.topics.values()} == image.topics_by_id
    assert sum(len(topic.partitions) for topic in image.topics.values()) == image.partition_count
    assert set(image.topic_name_by_folded.values()) == {
        n for n in image.topics if set(n) & {".", "_"}
    }


def test_the_same_holds_on_the_disk_of_this_machine(tmp_path: Path) -> None:
    async def life() -> ClusterImage:
        store = open_store(KernelDisk(), [str(tmp_path)])
        await register(store)
        for number in range(1, 5):
            await create(store, new_topic(f"t{number}", number), number)
        await store.execute(deletion("t2"))
        return store.image

    before = asyncio.run(life())
    store = open_store(KernelDisk(), [str(tmp_path)])
    assert store.image == before
    assert set(before.topics) == {"t1", "t3", "t4"}
    asyncio.run(store.close())
    assert open_store(KernelDisk(), [str(tmp_path)]).image == before
