"""The common parts of stories about metadata stores."""

from collections.abc import Awaitable, Callable
from typing import Any

from ottla.broker.metadata_store.zookeeper.znodes import BROKER_IDS
from ottla.environment.zookeeper import Stat
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.records import NO_LEADER, MetadataRecord
from ottla.simulation.world.zookeeper import MACHINE
from ottla.wire.messages.delete_topics import DeleteTopicState
from tests.metadata_building import new_topic, uuid_of
from tests.simulation.stores import TIMEOUT_SECONDS, Stores

Story = Callable[[Stores], Awaitable[None]]


def tell(
    story: Story, seed: int = 1, count: int = 3, rebalance_seconds: float | None = None
) -> None:
    """Start brokers, wait until they form a cluster, and run a story with them."""
    stores = Stores(seed, count)
    if rebalance_seconds is not None:
        stores.rebalance_seconds = rebalance_seconds

    async def told() -> None:
        stores.start_all()
        await stores.until_settled()
        await story(stores)

    stores.run(told)
    stores.rules.check()


async def create(stores: Stores, name: str, partitions: int = 1, replicas: int = 1) -> None:
    (controller,) = stores.controllers()
    number = int.from_bytes(name.encode(), "big")
    topic = new_topic(name, partitions, replicas)
    results = await stores.execute(
        controller, lambda one: one.create_topics([topic], topic_ids=[uuid_of(number)], start=0)
    )
    assert results[0].error_code == 0, results


def deletion(topic_id: bytes) -> Callable[[Controller], Decision[MetadataRecord, Any]]:
    return lambda one: one.delete_topics([DeleteTopicState(name=None, topic_id=topic_id)])


def cut_off(stores: Stores, broker_id: int) -> None:
    stores.world.network.block(f"b{broker_id}", MACHINE)
    stores.world.network.block(MACHINE, f"b{broker_id}")


def bring_back(stores: Stores, broker_id: int) -> None:
    stores.world.network.unblock(f"b{broker_id}", MACHINE)
    stores.world.network.unblock(MACHINE, f"b{broker_id}")


def others(stores: Stores, broker_id: int) -> list[int]:
    return [one for one in stores.ids if one != broker_id]


async def lose_both_replicas(stores: Stores) -> tuple[int, int]:
    """Kill the brokers of a topic, one after the other; return the last, and the survivor."""
    (controller,) = stores.controllers()
    await create(stores, "t", partitions=1, replicas=2)
    replicas = stores.store_by_id[controller].image.topics["t"].partitions[0].replicas
    (survivor,) = set(stores.ids) - set(replicas)
    for broker_id in replicas:
        stores.kill(broker_id)
        await stores.until(lambda: is_fenced(stores, broker_id), 60)
    await stores.until_settled()
    assert leader_of(stores, survivor) == NO_LEADER
    return replicas[1], survivor


def is_fenced(stores: Stores, broker_id: int) -> bool:
    """Return whether the controller, if there is one, has fenced a broker."""
    images = [stores.store_by_id[one].image for one in stores.controllers()]
    return any(image.brokers[broker_id].is_fenced for image in images)


def leader_of(stores: Stores, broker_id: int) -> int:
    return stores.store_by_id[broker_id].image.topics["t"].partitions[0].leader


async def registration(stores: Stores, broker_id: int, after: Stat | None = None) -> Stat:
    """Wait until a broker is registered, or registered again."""
    path, tree = f"{BROKER_IDS}/{broker_id}", stores.zookeeper.tree
    await stores.until(lambda: tree.exists(path) not in {None, after}, TIMEOUT_SECONDS - 3)
    return tree.get(path).stat
