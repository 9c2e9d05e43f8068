"""Brokers stop, die and restart: the controller over ZooKeeper tells incarnations apart."""

import pytest

from ottla.broker.metadata_store.zookeeper.znodes import BROKER_IDS
from ottla.environment.zookeeper import Delete
from ottla.metadata.records import NO_LEADER
from ottla.simulation.world.zookeeper import MACHINE
from ottla.wire.messages.elect_leaders import ElectLeadersRequest
from tests.simulation.store_stories import (
    bring_back,
    create,
    cut_off,
    leader_of,
    lose_both_replicas,
    others,
    registration,
    tell,
)
from tests.simulation.stores import Stores


def test_a_broker_that_comes_back_at_once_is_another_one_for_the_controller() -> None:
    async def story(stores: Stores) -> None:
        (controller,) = stores.controllers()
        broker_id = others(stores, controller)[0]
        await create(stores, "t", partitions=6, replicas=3)
        before = stores.store_by_id[controller].image.brokers[broker_id].broker_epoch
        stores.kill(broker_id)
        stores.start(broker_id)
        await stores.until(lambda: broker_id in stores.store_by_id)
        await stores.store_by_id[broker_id].wait_until_in_service()
        after = stores.store_by_id[broker_id].broker_epoch
        assert after > before
        image = stores.store_by_id[controller].image
        assert image.brokers[broker_id].broker_epoch == after
        # A returning replica has to catch up before it is in sync again.
        assert all(broker_id not in one.isr for one in image.topics["t"].partitions)

    tell(story)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_registration_changed_between_two_looks_is_noticed(*, is_killed: bool) -> None:
    async def story(stores: Stores) -> None:
        (controller,) = stores.controllers()
        broker_id = others(stores, controller)[0]
        await create(stores, "t", partitions=6, replicas=3)
        if is_killed:  # the next term has to detect it
            stores.kill(controller)
        else:
            stores.machine(controller).pause()
        before = await registration(stores, broker_id)
        stores.zookeeper.expire(before.owner_session)
        await registration(stores, broker_id, after=before)
        if not is_killed:
            stores.machine(controller).resume()
        await stores.world.elapse(0.1)
        await stores.until_settled()
        image = stores.store_by_id[stores.controllers()[0]].image
        assert image.brokers[broker_id].broker_epoch > before.created_zxid
        assert all(broker_id not in one.isr for one in image.topics["t"].partitions)

    tell(story)


@pytest.mark.parametrize("has_lost_tail", [False, True])
def test_the_last_replica_leads_again_only_if_it_has_lost_nothing(*, has_lost_tail: bool) -> None:
    async def story(stores: Stores) -> None:
        last, survivor = await lose_both_replicas(stores)
        stores.start(last, has_lost_tail=has_lost_tail)
        await stores.until_settled()
        assert leader_of(stores, survivor) == (NO_LEADER if has_lost_tail else last)

    tell(story, seed=3)


def test_a_lost_tail_is_said_until_the_controller_has_heard_of_it() -> None:
    async def story(stores: Stores) -> None:
        last, survivor = await lose_both_replicas(stores)
        stores.machine(survivor).pause()
        stores.start(last, has_lost_tail=True)
        first = await registration(stores, last)
        stores.zookeeper.expire(first.owner_session)
        await registration(stores, last, after=first)
        stores.machine(survivor).resume()
        await stores.world.elapse(0.1)
        await stores.until_settled()
        assert leader_of(stores, survivor) == NO_LEADER

    tell(story, seed=3)


def test_a_lost_tail_is_said_once_and_not_of_what_was_written_since() -> None:
    async def story(stores: Stores) -> None:
        last, survivor = await lose_both_replicas(stores)
        stores.start(last, has_lost_tail=True)
        await stores.until_settled()
        request = ElectLeadersRequest(election_type=1, topic_partitions=None)
        await stores.execute(survivor, lambda one: one.elect_leaders(request))
        assert leader_of(stores, survivor) == last
        before = await registration(stores, last)
        stores.zookeeper.expire(before.owner_session)
        await registration(stores, last, after=before)
        await stores.until_settled()
        assert leader_of(stores, survivor) == last

    tell(story, seed=3)


def test_a_broker_without_its_session_resigns_and_registers_again() -> None:
    async def story(stores: Stores) -> None:
        (controller,) = stores.controllers()
        broker_id = others(stores, controller)[0]
        store = stores.store_by_id[broker_id]
        before = store.broker_epoch
        cut_off(stores, broker_id)
        await stores.until(
            lambda: stores.store_by_id[controller].image.brokers[broker_id].is_fenced
        )
        assert not store.is_session_confirmed
        bring_back(stores, broker_id)
        await stores.until_settled()
        assert store.broker_epoch > before
        assert store.is_session_confirmed

    tell(story)


@pytest.mark.parametrize("seed", range(5))
def test_no_broker_is_sure_of_an_expired_session(seed: int) -> None:
    async def story(stores: Stores) -> None:
        store = stores.store_by_id[0]
        stores.world.network.link(MACHINE, "b0").delay_seconds = 0.9  # responses are stale
        await stores.world.elapse(10 + seed * 0.37)
        assert store.is_session_confirmed
        stores.world.network.block("b0", MACHINE)
        while stores.zookeeper.tree.exists(f"{BROKER_IDS}/0") is not None:
            await stores.world.elapse(0.01)
        assert not store.is_session_confirmed

    tell(story, seed)


def test_a_broker_removed_from_zookeeper_registers_again() -> None:
    async def story(stores: Stores) -> None:
        before = stores.store_by_id[0].broker_epoch
        tree = stores.zookeeper.tree
        tree.commit(tree.open_session(), [Delete(f"{BROKER_IDS}/0")])
        await stores.until(lambda: stores.store_by_id[0].broker_epoch > before)
        await stores.until_settled()

    tell(story)


def test_of_brokers_that_go_together_none_leads_in_place_of_another() -> None:
    async def story(stores: Stores) -> None:
        await create(stores, "t", partitions=12, replicas=3)
        (controller,) = stores.controllers()
        killed = others(stores, controller)[:2]
        for broker_id in killed:
            stores.zookeeper.expire((await registration(stores, broker_id)).owner_session)
            stores.kill(broker_id)
        await stores.until_settled()
        partitions = stores.store_by_id[controller].image.topics["t"].partitions
        assert all(one.leader_epoch <= 1 for one in partitions)

    tell(story, count=4)


def test_a_broker_that_was_unregistered_is_forgotten_by_the_next_term_too() -> None:
    async def story(stores: Stores) -> None:
        (controller,) = stores.controllers()
        gone, successor = others(stores, controller)
        stores.kill(gone)
        await stores.until_settled()
        await stores.execute(controller, lambda one: one.unregister_broker(gone))
        stores.kill(controller)
        await stores.until_settled()
        assert stores.store_by_id[successor].image.brokers.keys() == {controller, successor}

    tell(story)
