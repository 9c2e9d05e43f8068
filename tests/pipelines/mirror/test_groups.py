"""Groups continue at the same records: offsets are translated, active groups are left alone."""

import random

from ottla import Admin, CommittedOffset, Consumer, Producer, TopicPartition
from ottla.pipelines.mirror.running import Following
from tests.pipelines.mirror.mirroring import (
    Truth,
    mirror,
    options_of,
    records_by_partition,
)

NAME = TopicPartition("trades", 0)


def write(servers: str, count: int) -> None:
    """Write short transactions, so that offsets differ between the clusters."""
    with Producer(bootstrap_servers=servers, transactional_id="writer") as producer:
        producer.init_transactions()
        for number in range(count):
            producer.begin_transaction()
            producer.send("trades", b"%d" % number, partition=0)
            producer.flush()
            if number % 4 == 3:
                producer.abort_transaction()
            else:
                producer.commit_transaction()


def commit(servers: str, group: str, offset: int, metadata: str = "") -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.groups.commit(group, {NAME: CommittedOffset(offset, metadata=metadata)})


def committed(servers: str, group: str) -> CommittedOffset | None:
    with Admin(bootstrap_servers=servers) as admin:
        return admin.groups.committed(group).get(NAME)


def test_every_committed_offset_finds_its_record_on_the_target(source: str, target: str) -> None:
    write(source, 30)
    end = max(records_by_partition(source, "trades")[0]) + 2
    offsets = random.sample(range(end + 1), 12)
    for offset in offsets:
        commit(source, f"group {offset}", offset, metadata="mine")
    mirror(options_of(source, target, "trades"))
    here, there = (records_by_partition(servers, "trades")[0] for servers in (source, target))
    truth = Truth(here, there)
    for offset in offsets:
        found = committed(target, f"group {offset}")
        assert found is not None
        assert found.offset == truth.translate(offset), offset
        assert found.metadata == "mine"


def test_a_group_is_never_ahead_of_what_was_copied(source: str, target: str) -> None:
    write(source, 6)
    options = options_of(source, target, "trades")
    mirror(options)
    write(source, 6)
    commit(source, "fast", max(records_by_partition(source, "trades")[0]) + 1)
    with Following(options) as following:
        following.follow()  # nothing is copied here
        there = records_by_partition(target, "trades")[0]
        early = committed(target, "fast")
        assert early is not None
        assert early.offset == max(there) + 1
    mirror(options)
    late = committed(target, "fast")
    assert late is not None
    assert late.offset == max(records_by_partition(target, "trades")[0]) + 1


def test_a_group_is_at_the_start_of_what_is_not_copied_yet(source: str, target: str) -> None:
    options = options_of(source, target, "trades")
    with Admin(bootstrap_servers=source) as admin:
        admin.topics.create("trades", partitions=1)
    commit(source, "early", 0)
    with Following(options) as following:
        following.follow()
        early = committed(target, "early")
        assert early is not None
        assert early.offset == 0
    write(source, 3)
    commit(source, "early", 2)
    mirror(options)
    late = committed(target, "early")
    assert late is not None
    assert late.offset == 1


def test_a_group_that_has_moved_on_is_not_taken_back(source: str, target: str) -> None:
    write(source, 10)
    options = options_of(source, target, "trades")
    commit(source, "moved", 2)
    mirror(options)
    commit(target, "moved", 9)
    mirror(options)
    found = committed(target, "moved")
    assert found is not None
    assert found.offset == 9


def test_a_group_that_goes_back_on_the_source_is_followed(source: str, target: str) -> None:
    write(source, 10)
    options = options_of(source, target, "trades")
    mirror(options)
    with Following(options) as following:
        commit(source, "again", 9)
        following.follow()
        before = committed(target, "again")
        commit(source, "again", 0)
        following.follow()
    after = committed(target, "again")
    assert before is not None
    assert after is not None
    assert after.offset == 0 < before.offset


def test_a_group_with_members_on_the_target_is_left_alone(source: str, target: str) -> None:
    write(source, 10)
    options = options_of(source, target, "trades")
    commit(source, "busy", 4)
    commit(source, "other", 4)
    mirror(options_of(source, target, "trades", groups=""))
    settings = {"auto.offset.reset": "earliest", "group.id": "busy"}
    with Consumer(settings, bootstrap_servers=target) as consumer:
        consumer.subscribe(["trades"])
        while not consumer.poll(timeout=1.0):
            pass
        consumer.commit()
        before = committed(target, "busy")
        mirror(options)
        assert committed(target, "busy") == before
    assert committed(target, "other") is not None


def test_only_the_groups_that_were_asked_for_are_followed(source: str, target: str) -> None:
    write(source, 3)
    commit(source, "shop-1", 1)
    commit(source, "bank-1", 1)
    mirror(options_of(source, target, "trades", groups="shop-.*"))
    assert committed(target, "shop-1") is not None
    assert committed(target, "bank-1") is None
