"""Consumer groups of every client library, over real sockets: the same stories for each."""

from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.clients.conftest import DRIVERS, SETTINGS
from tests.clients.driver import AdminDriver, Driver, Member, Received, Sent, read_until
from tests.clients.drivers.aio_kafka import AioKafkaDriver
from tests.clients.drivers.librdkafka import LibrdkafkaDriver

PARTITIONS = 4
COOPERATIVE = [kind for kind in DRIVERS if kind is not AioKafkaDriver]
"""aiokafka has no assignor that keeps partitions with their owners."""


def values(count: int, *, start: int = 0) -> list[bytes]:
    return [f"letter {number}".encode() for number in range(start, start + count)]


def fill(driver: Driver, topic: str, count: int, *, start: int = 0) -> set[bytes]:
    written = values(count, start=start)
    driver.produce(topic, [Sent(value, b"key") for value in written])
    return set(written)


def create(servers: str, topic: str) -> None:
    LibrdkafkaDriver(servers).create_topic(topic, PARTITIONS)


def seen(found: list[Received]) -> set[bytes | None]:
    return {one.value for one in found}


def test_a_group_goes_on_where_it_stopped(driver: Driver, topic: str) -> None:
    first_half = fill(driver, topic, 100)
    first = driver.join(topic, topic)
    found = read_until([first], lambda found: seen(found) == first_half)
    found += first.close()
    second_half = fill(driver, topic, 100, start=100)
    second = driver.join(topic, topic)
    found += read_until([second], lambda found: seen(found) >= second_half)
    found += second.close()
    assert sorted(one.offset for one in found) == list(range(200))
    if isinstance(driver, AdminDriver):
        assert topic in driver.groups()


def test_partitions_are_shared_and_go_over_when_a_member_leaves(driver: Driver, topic: str) -> None:
    share_and_leave(driver, topic, is_cooperative=False)


@pytest.mark.parametrize("client", COOPERATIVE, indirect=True, ids=lambda kind: kind.name)
def test_partitions_go_over_one_by_one_where_members_cooperate(driver: Driver, topic: str) -> None:
    share_and_leave(driver, topic, is_cooperative=True)


def share_and_leave(driver: Driver, topic: str, *, is_cooperative: bool) -> None:
    create(driver.servers, topic)
    written = fill(driver, topic, 200)
    members = [driver.join(topic, topic, is_cooperative=is_cooperative) for _ in range(3)]
    found = read_until(
        members,
        lambda found: sorted(map(_share, members)) == [1, 1, 2] and seen(found) == written,
    )
    owned = [one for member in members for one in member.partitions()]
    assert sorted(owned) == list(range(PARTITIONS))
    found += members[0].close()
    found += read_until(members[1:], lambda _: list(map(_share, members[1:])) == [2, 2])
    found += members[1].close()
    found += read_until(members[2:], lambda _: _share(members[2]) == PARTITIONS)
    written |= fill(driver, topic, 100, start=200)
    found += read_until(members[2:], lambda more: seen(found + more) == written)
    members[2].close()


def _share(member: Member) -> int:
    return len(member.partitions())


def test_a_static_member_returns_to_its_partitions_without_a_rebalance(
    driver: Driver, topic: str
) -> None:
    create(driver.servers, topic)
    one = driver.join(topic, topic, instance="one")
    two = driver.join(topic, topic, instance="two")
    read_until([one, two], lambda _: _share(one) == _share(two) == 2)
    before = one.partitions()
    rebalances_before = two.rebalances
    one.close()
    again = driver.join(topic, topic, instance="one")
    read_until([again, two], lambda _: _share(again) == 2)
    written = fill(driver, topic, 50)
    read_until([again, two], lambda found: seen(found) == written)
    assert again.partitions() == before
    assert two.rebalances == rebalances_before
    again.close()
    two.close()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_members_live_through_a_restart_of_the_broker(client: type[Driver], tmp_path: Path) -> None:
    with Broker(SETTINGS, data_dir=str(tmp_path)) as broker:
        port = broker.port
        driver = client(broker.bootstrap_servers)
        create(driver.servers, "kept")
        first_half = fill(driver, "kept", 100)
        members = [driver.join("readers", "kept") for _ in range(2)]
        found = read_until(
            members, lambda found: seen(found) == first_half and _share(members[0]) == 2
        )
    with Broker(SETTINGS, data_dir=str(tmp_path), port=port):
        second_half = fill(driver, "kept", 100, start=100)
        found += read_until(members, lambda found: seen(found) >= second_half)
        found += [one for member in members for one in member.close()]
    assert seen(found) == first_half | second_half
