"""Nodes of a quorum from start to end: registration, service, leases, departure."""

from dataclasses import replace

import pytest

from ottla.broker.metadata_store.meta_properties import ForeignLogDirError
from ottla.broker.startup.quorum.listener_routes import OFFERED
from ottla.metadata.image import ClusterImage
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import uuid_to_text
from ottla.storage.files.checkpoints import read_meta_properties, write_meta_properties
from tests.metadata_building import new_topic, uuid_of
from tests.quorum_cluster import QuorumCluster

BOTH = dict.fromkeys((1, 2, 3), "broker,controller")
APART = {**dict.fromkeys((1, 2, 3), "controller"), **dict.fromkeys((4, 5, 6), "broker")}
SESSION_SECONDS = 9.0


async def create(cluster: QuorumCluster, name: str, factor: int = 3) -> None:
    """Create a topic by the active controller."""
    (active,) = cluster.active()
    topic = new_topic(name, 6, factor)
    number = sum(map(ord, name))
    process = cluster.machine(active).process
    assert process is not None
    creating = cluster.store(active).execute(
        lambda one: one.create_topics([topic], topic_ids=[uuid_of(number)], start=0)
    )
    results = await process.context.run(cluster.world.loop.create_task, creating)
    assert [one.error_code for one in results] == [0], results


@pytest.mark.parametrize("roles", [BOTH, APART], ids=["both-roles", "roles-apart"])
def test_a_formatted_cluster_comes_into_service(roles: dict[int, str]) -> None:
    async def story(cluster: QuorumCluster) -> None:
        cluster.format()
        await cluster.start()
        await cluster.until(lambda: len(cluster.active()) == 1)
        await create(cluster, "orders")
        for node_id in roles:
            await cluster.until(lambda: "orders" in cluster.image(node_id).topics)
        image = cluster.image(cluster.active()[0])
        assert sorted(image.brokers) == cluster.brokers
        assert not any(one.is_fenced for one in image.brokers.values())
        await cluster.until(lambda: sorted(image_of(cluster).controllers) == cluster.controllers)

    QuorumCluster(roles).run(story)


def image_of(cluster: QuorumCluster) -> ClusterImage:
    """Return the image of the active controller."""
    return cluster.image(cluster.active()[0])


def test_a_listener_for_controllers_offers_the_apis_of_kafkas_and_no_more() -> None:
    kafka = {
        *(1, 17, 18, 19, 20, 29, 30, 31, 32, 33, 36, 37, 38, 39, 40, 41, 43, 44, 45, 46),
        *(49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 62, 63, 64, 67, 70, 73, 80, 81, 82),
    }

    async def story(cluster: QuorumCluster) -> None:
        cluster.format()
        await cluster.start()
        assert cluster.node(1).routes.keys() == kafka == OFFERED
        assert all(one.is_offered() for one in cluster.node(1).routes.values())

    QuorumCluster({1: "controller"}).run(story)


def test_a_broker_that_is_cut_off_loses_its_lease_before_it_is_fenced() -> None:
    async def story(cluster: QuorumCluster) -> None:
        cluster.format()
        await cluster.start()
        await cluster.until(lambda: cluster.mode(4).has_valid_lease())
        leases: list[bool] = []

        def look(image: ClusterImage, _records: object) -> None:
            if image.brokers[4].is_fenced:
                leases.append(cluster.mode(4).has_valid_lease())

        cluster.store(cluster.active()[0]).subscribe(look)
        cluster.cut(4, 1, 2, 3)
        cut_at = cluster.world.loop.time()
        await cluster.until(lambda: leases)
        assert not leases[0]
        assert cluster.world.loop.time() - cut_at <= SESSION_SECONDS + 1

    QuorumCluster(APART).run(story)


def test_a_broker_that_stops_hands_over_first_and_may_come_back_at_once() -> None:
    async def story(cluster: QuorumCluster) -> None:
        cluster.format()
        await cluster.start()
        await create(cluster, "orders")
        stopped_at = cluster.world.loop.time()
        await cluster.stop(4)
        assert cluster.world.loop.time() - stopped_at < 0.5
        image = image_of(cluster)
        assert image.brokers[4].is_fenced
        assert all(one.leader in {5, 6} for one in image.topics["orders"].partitions)
        await cluster.start(4)
        assert cluster.world.loop.time() - stopped_at < 1
        assert not image_of(cluster).brokers[4].is_fenced

    QuorumCluster(APART).run(story)


def test_a_killed_broker_is_fenced_after_a_session_and_stays_eligible() -> None:
    async def story(cluster: QuorumCluster) -> None:
        cluster.format()
        await cluster.start()
        await create(cluster, "orders")
        cluster.kill(4)
        killed_at = cluster.world.loop.time()
        await cluster.until(lambda: image_of(cluster).brokers[4].is_fenced)
        assert cluster.world.loop.time() - killed_at <= SESSION_SECONDS + 1
        epoch = image_of(cluster).brokers[4].broker_epoch
        await cluster.start(4)
        own = image_of(cluster).brokers[4]
        assert own.broker_epoch > epoch
        assert not own.is_fenced

    QuorumCluster(APART).run(story)


def test_another_controller_takes_over_and_no_broker_is_fenced() -> None:
    async def story(cluster: QuorumCluster) -> None:
        cluster.format()
        await cluster.start()
        await create(cluster, "orders")
        (before,) = cluster.active()
        cluster.kill(before)
        killed_at = cluster.world.loop.time()
        await cluster.until(lambda: len(cluster.active()) == 1)
        assert cluster.world.loop.time() - killed_at < 1
        await create(cluster, "payments")
        await cluster.world.elapse(2 * SESSION_SECONDS)
        assert not any(one.is_fenced for one in image_of(cluster).brokers.values())
        assert all(cluster.mode(one).has_valid_lease() for one in cluster.brokers)

    QuorumCluster(APART).run(story)


def test_a_node_in_an_unformatted_directory_says_what_to_do() -> None:
    async def story(cluster: QuorumCluster) -> None:
        with pytest.raises(ForeignLogDirError, match=r"not formatted.*ottla storage format"):
            await cluster.open(1)

    QuorumCluster({1: "broker,controller"}).run(story)


def test_a_node_in_the_directory_of_another_node_names_that_node() -> None:
    async def story(cluster: QuorumCluster) -> None:
        cluster.format()
        cluster.settings["node.id"] = "7"
        with pytest.raises(ForeignLogDirError, match="belongs to node 1, not to 7"):
            await cluster.open(1)

    QuorumCluster({1: "broker,controller"}).run(story)


def test_a_node_of_another_cluster_says_which_leader_it_waits_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(cluster: QuorumCluster) -> None:
        cluster.format(1)
        cluster.format(2, cluster_id="another-cluster")
        await cluster.start(1)
        cluster.launch(2)
        await cluster.world.elapse(10)
        assert "no leader of the quorum of cluster another-cluster is known" in caplog.text
        assert "asked n1:9093" in caplog.text
        assert 2 not in cluster.running
        cluster.kill(2)

    QuorumCluster({1: "broker,controller", 2: "broker"}).run(story)


def test_a_voter_whose_cluster_id_was_changed_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: QuorumCluster) -> None:
        cluster.format()
        await cluster.start()
        await cluster.until(lambda: len(cluster.active()) == 1)
        other = next(one for one in cluster.controllers if one not in cluster.active())
        await cluster.stop(other)
        marks = "/data/meta.properties"
        disk = cluster.machine(other).disk
        mark = read_meta_properties(disk, marks)
        assert mark is not None
        write_meta_properties(disk, marks, replace(mark, cluster_id="another-cluster"))
        cluster.launch(other)
        await cluster.world.elapse(10)
        assert "no leader of the quorum of cluster another-cluster is known" in caplog.text
        assert "belongs to another cluster: compare cluster.id" in caplog.text
        cluster.kill(other)

    QuorumCluster(dict.fromkeys((1, 2, 3), "controller")).run(story)


def test_a_controller_without_a_vote_says_how_it_gets_one(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: QuorumCluster) -> None:
        cluster.format()
        await cluster.start(1, 2)
        marks = "/data/meta.properties"
        disk = cluster.machine(3).disk
        mark = read_meta_properties(disk, marks)
        assert mark is not None
        write_meta_properties(disk, marks, replace(mark, directory_id=uuid_of(7)))
        await cluster.start(3)
        await cluster.world.elapse(10)
        known = uuid_to_text(uuid_of(1003))
        assert f"the voter 3 of the quorum has the directory {known}" in caplog.text
        assert "`ottla quorum remove 3` and then `ottla quorum add`" in caplog.text
        assert caplog.text.count("without a vote") == 1

    QuorumCluster(dict.fromkeys((1, 2, 3), "controller")).run(story)


def test_voters_of_the_settings_move_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """As in the directory of an embedded broker, which begins a quorum with one voter."""

    async def story(cluster: QuorumCluster) -> None:
        cluster.format(has_voters=False)
        cluster.launch(1)
        await cluster.world.elapse(10)
        assert "this controller knows no voters: controller.quorum.voters" in caplog.text
        cluster.kill(1)
        cluster.settings["controller.quorum.voters"] = "1@n1:9093"
        await cluster.start()
        await cluster.until(lambda: len(cluster.active()) == 1 and image_of(cluster).controllers)
        await cluster.world.elapse(5)  # Each voter tells the leader its entry.
        levels = {"transaction.version": 2, "kraft.version": 1}
        assert (await cluster.update_features(levels, validate_only=True)).error_code == 0
        assert cluster.node(1).replica.kraft_version == 0
        refused = await cluster.update_features({"kraft.version": 2})
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        done = await cluster.update_features({"kraft.version": 1})
        assert done.error_code == 0, done
        replica = cluster.node(1).replica
        assert replica.kraft_version == 1
        assert replica.high_watermark == replica.end_offset, "it is committed"
        assert [key.directory_id for key in replica.voters.keys] == [uuid_of(1001)]
        await create(cluster, "orders", 1)
        await cluster.stop(1)
        del cluster.settings["controller.quorum.voters"]
        await cluster.start()
        assert "orders" in cluster.image(1).topics

    QuorumCluster({1: "broker,controller"}).run(story)
