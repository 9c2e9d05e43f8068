"""Topics on the target: made, followed, and refused where they cannot be copies."""

import asyncio
from time import time

import pytest

from ottla import Admin, ConfigResource, Producer
from ottla.clients.admin.admin_configs import ConfigSource
from ottla.pipelines.mirror.options import MirrorError, MirrorOptions
from ottla.pipelines.mirror.planning import Planner
from ottla.pipelines.mirror.running import Following
from ottla.pipelines.mirror.topics import AFTER_MAX, _different
from ottla.testing import Broker
from tests.pipelines.mirror.mirroring import SETTINGS, contents, mirror, options_of

FOR_EVER_MS = str(2**63 - 1)


def own_configs(servers: str, topic: str) -> dict[str, str | None]:
    with Admin(bootstrap_servers=servers) as admin:
        (entries,) = admin.configs.describe(ConfigResource.topic(topic)).values()
    return {
        entry.name: entry.value
        for entry in entries.values()
        if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    }


async def planned(options: MirrorOptions) -> set[str]:
    """Return the topics that a plan is made for."""
    planner = Planner(options)
    try:
        return {key.partition(":")[0] for key in await planner.last_ends()}
    finally:
        (await planner._meet())[0].close()


def send(servers: str, topic: str, *values: bytes) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for value in values:
            producer.send(topic, value, key=value)
        producer.flush()


def test_a_copy_has_the_shape_and_the_settings_of_its_source(source: str, target: str) -> None:
    with Admin(bootstrap_servers=source) as admin:
        configs = {"retention.ms": "5000", "segment.bytes": "2000000"}
        admin.topics.create("shaped", partitions=5, configs=configs)
    mirror(options_of(source, target, "shaped"))
    with Admin(bootstrap_servers=target) as admin:
        assert len(admin.topics.describe("shaped")["shaped"].partitions) == 5
    assert own_configs(target, "shaped") == configs


def test_new_partitions_and_changed_settings_are_followed(source: str, target: str) -> None:
    with Admin(bootstrap_servers=source) as admin:
        admin.topics.create("growing", partitions=1, configs={"retention.ms": "5000"})
        options = options_of(source, target, "grow.*")
        mirror(options)
        admin.topics.create_partitions({"growing": 3})
        topic = ConfigResource.topic("growing")
        admin.configs.alter({topic: {"retention.ms": None, "segment.bytes": "3000000"}})
    send(source, "growing", *(b"%d" % number for number in range(100)))
    mirror(options)
    assert own_configs(target, "growing") == {"segment.bytes": "3000000"}
    assert contents(target, "growing") == contents(source, "growing")


def test_times_that_the_copy_refuses_are_told_of_and_allowed_there(target: str) -> None:
    with Broker({**SETTINGS, "log.message.timestamp.after.max.ms": FOR_EVER_MS}) as broker:
        source = broker.bootstrap_servers
        with Producer(bootstrap_servers=source) as producer:
            producer.send("future", b"of some other day", timestamp=int(time() * 1000) + 10**9)
            producer.flush()
        options = options_of(source, target, "future")
        with pytest.raises(MirrorError, match="of topic 'future' on the target, which"):
            mirror(options)
        with Admin(bootstrap_servers=target) as admin:
            admin.configs.alter({ConfigResource.topic("future"): {AFTER_MAX: FOR_EVER_MS}})
        mirror(options)
        assert contents(target, "future") == contents(source, "future")
    assert own_configs(target, "future") == {AFTER_MAX: FOR_EVER_MS}


@pytest.mark.parametrize(
    ("own", "wanted", "changes"),
    [
        ({AFTER_MAX: "9"}, {}, {}),
        ({AFTER_MAX: "9"}, {AFTER_MAX: "5"}, {}),
        ({AFTER_MAX: "5"}, {AFTER_MAX: "9"}, {AFTER_MAX: "9"}),
        ({}, {AFTER_MAX: "9"}, {AFTER_MAX: "9"}),
        ({"retention.ms": "9"}, {}, {"retention.ms": None}),
    ],
)
def test_how_late_times_may_be_is_only_raised(
    own: dict[str, str | None], wanted: dict[str, str], changes: dict[str, str | None]
) -> None:
    assert _different(own, wanted) == changes


def test_a_topic_that_appears_later_is_copied_if_it_matches(source: str, target: str) -> None:
    with Admin(bootstrap_servers=source) as admin:
        admin.topics.create("eu.a", partitions=1)
        admin.topics.create("us.a", partitions=1)
        with Following(options_of(source, target, "eu[.].*", prefix="copy.")) as following:
            admin.topics.create("eu.b", partitions=1)
            following.follow()
    with Admin(bootstrap_servers=target) as admin:
        names = {topic.name for topic in admin.topics.list()}
    assert {name for name in names if name.startswith("copy.")} == {"copy.eu.a", "copy.eu.b"}


def test_foreign_records_in_the_target_are_an_error(source: str, target: str) -> None:
    for servers in (source, target):
        send(servers, "taken", b"mine")
    with pytest.raises(MirrorError, match="with records that this mirror has not written"):
        mirror(options_of(source, target, "taken"))
    mirror(options_of(source, target, "taken", prefix="a."))
    assert contents(target, "a.taken") == contents(source, "taken")


def test_another_number_of_partitions_is_an_error(source: str, target: str) -> None:
    for servers, count in ((source, 4), (target, 2)):
        with Admin(bootstrap_servers=servers) as admin:
            admin.topics.create("narrow", partitions=count)
    with pytest.raises(MirrorError, match="with 2 partitions, on the source 'narrow' has 4"):
        mirror(options_of(source, target, "narrow"))


def test_a_source_that_was_made_again_is_noticed_and_copied_anew_when_asked(
    source: str, target: str
) -> None:
    options = options_of(source, target, "reborn")
    send(source, "reborn", b"first life")
    mirror(options)
    with Admin(bootstrap_servers=source) as admin:
        admin.topics.delete("reborn")
        admin.topics.create("reborn", partitions=1)
    send(source, "reborn", b"second life")
    with pytest.raises(MirrorError, match="deleted and made again; delete 'reborn'"):
        mirror(options)
    with Admin(bootstrap_servers=target) as admin:
        admin.topics.delete("reborn")
    mirror(options)
    assert contents(target, "reborn") == contents(source, "reborn")


def test_what_came_from_the_target_does_not_go_back(source: str, target: str) -> None:
    send(source, "there", b"and not back again")
    mirror(options_of(source, target, "there", prefix="a."))
    following = mirror(options_of(target, source, ".*"))
    assert following._copies == []
    with Admin(bootstrap_servers=source) as admin:
        assert not [topic.name for topic in admin.topics.list() if topic.name.startswith("a.")]


def test_topics_of_brokers_and_mirrors_are_never_copied(source: str, target: str) -> None:
    options = options_of(source, target, ".*")
    assert not options.is_wanted("__consumer_offsets")
    assert not options.is_wanted("ottla-mirror.x.offsets")
    with pytest.raises(MirrorError, match="it is not mirrored"):
        options_of(source, target, "__consumer_offsets").checked()


def test_a_named_topic_that_is_missing_is_an_error(source: str, target: str) -> None:
    with pytest.raises(MirrorError, match="there is no topic 'missing' to mirror"):
        mirror(options_of(source, target, "missing"))


def test_a_cluster_is_not_mirrored_to_itself(source: str) -> None:
    with pytest.raises(MirrorError, match="the same cluster"):
        mirror(options_of(source, source, ".*"))


def test_a_topic_that_is_deleted_does_not_hold_up_the_others(source: str, target: str) -> None:
    options = options_of(source, target, "shop[.].*")
    for topic in ("shop.a", "shop.b"):
        send(source, topic, b"before")
    mirror(options)
    with Admin(bootstrap_servers=source) as admin:
        admin.topics.delete("shop.a")
    send(source, "shop.b", b"after")
    mirror(options)
    assert asyncio.run(planned(options)) == {"shop.b"}, "nobody waits for what is gone"
    assert contents(target, "shop.b") == contents(source, "shop.b")
    assert [row.value for row in contents(target, "shop.a")[0]] == [b"before"]
