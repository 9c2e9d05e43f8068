"""A disk loses a part of a closed segment: the replica is repaired, and no reader skips records."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

import ottla
from ottla.testing.cluster import Cluster
from ottla.wire.records.batch import batches
from tests.cluster.load import WAIT_SECONDS_MAX, Load
from tests.cluster.modes import IN_A_QUORUM, IN_BOTH_MODES
from tests.cluster.watching import BROKERS, Watcher, settings_of

SCRUBBED = {"log.scrub.interval.ms": "300", "log.scrub.io.max.bytes.per.second": "100000000"}
RECORDS = 4_000
RECORD_BYTES = 1_000
SEGMENTS = {"segment_bytes": str(1 << 20)}


@pytest.fixture(scope="module")
def running(has_zookeeper: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(
        BROKERS,
        settings_of(zookeeper=has_zookeeper) | SCRUBBED,
        data_dir=folder,
        zookeeper=has_zookeeper,
    ) as cluster:
        yield cluster


def values() -> list[bytes]:
    return [b"%d:" % number + b"x" * RECORD_BYTES for number in range(RECORDS)]


def fill(cluster: Cluster, topic: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,  # A retry must not change the order.
            "batch.size": 20_000,
            "linger.ms": 5,
        }
    )
    failed: list[KafkaError] = []
    for value in values():
        while True:
            try:
                producer.produce(
                    topic, value, on_delivery=lambda error, _: error and failed.append(error)
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    assert not failed


def segments(cluster: Cluster, broker: int, topic: str) -> list[Path]:
    return sorted((Path(cluster.brokers[broker].data_dir) / f"{topic}-0").glob("*.log"))


def content(cluster: Cluster, broker: int, topic: str) -> bytes:
    """Return all batches of a replica; nothing while a segment is being replaced."""
    try:
        return b"".join(path.read_bytes() for path in segments(cluster, broker, topic))
    except FileNotFoundError:
        return b""


def damage(path: Path, at: float = 0.5, size_bytes: int = 1) -> None:
    """Change bytes in a file as a failing disk does, without notice to the broker."""
    with path.open("r+b") as file:
        position = int(path.stat().st_size * at)
        file.seek(position)
        old = file.read(size_bytes)
        file.seek(position)
        file.write(bytes(byte ^ 0x10 for byte in old))


def damage_batch(paths: list[Path], offset: int) -> None:
    """Change a byte of the batch that holds an offset: replicas have it in different places."""
    for path in paths:
        position = 0
        for batch in batches(memoryview(path.read_bytes())):
            if batch.base_offset <= offset <= batch.last_offset:
                damage(path, (position + batch.size_bytes - 1) / path.stat().st_size)
            position += batch.size_bytes


def consumed(cluster: Cluster, topic: str, offset: int = 0, end: int = RECORDS) -> list[bytes]:
    """Read a range of offsets with librdkafka; an error before its end ends the test."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: list[Message] = []
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(found) < end - offset and not any(one.error() for one in found):
        assert time.monotonic() < deadline, f"{len(found)} records, and nothing more"
        found += consumer.consume(1_000, 0.2)
    consumer.close()
    del found[end - offset :]  # it reads ahead
    assert [one.error() for one in found if one.error()] == []
    assert [one.offset() for one in found] == list(range(offset, end))
    return [one.value() for one in found]


def wait_until_repaired(cluster: Cluster, watcher: Watcher, topic: str) -> None:
    brokers = list(cluster.brokers)
    watcher.wait_until(lambda: len({content(cluster, one, topic) for one in brokers}) == 1)
    watcher.wait_until(lambda: watcher.in_sync(topic) == {1, 2, 3})


@IN_BOTH_MODES
@pytest.mark.parametrize("broker", [1, 2], ids=["leader", "follower"])
def test_a_running_broker_finds_a_flipped_bit_and_repairs_it(
    cluster: Cluster, watcher: Watcher, broker: int
) -> None:
    topic = f"flipped-{broker}"
    watcher.create_topic(topic, [[1, 2, 3]], **SEGMENTS)
    fill(cluster, topic)
    whole = content(cluster, broker, topic)
    (epoch,) = watcher.leader_epochs(topic, 1)
    with Load(cluster.bootstrap_servers, topic, 1) as load:
        damage_batch(segments(cluster, broker, topic)[:-1], 1_500)
        assert not content(cluster, broker, topic).startswith(whole)
        watcher.wait_until(lambda: content(cluster, broker, topic).startswith(whole))
        load.goes_on()
    wait_until_repaired(cluster, watcher, topic)
    assert consumed(cluster, topic) == values()
    assert (watcher.leader_epochs(topic, 1)[0] > epoch) == (broker == 1)
    assert not list(segments(cluster, broker, topic)[1].parent.glob("*.damage"))


@IN_A_QUORUM
def test_every_replica_is_damaged_elsewhere_while_all_brokers_are_stopped(
    cluster: Cluster, watcher: Watcher
) -> None:
    watcher.create_topic("everywhere", [[1, 2, 3]], **SEGMENTS)
    fill(cluster, "everywhere")
    cluster.stop()
    for broker in cluster.brokers:
        damage(segments(cluster, broker, "everywhere")[broker - 1], 0.5, 100_000)
    cluster.start()
    wait_until_repaired(cluster, watcher, "everywhere")
    assert consumed(cluster, "everywhere") == values()


@IN_A_QUORUM
def test_damage_that_a_start_finds_is_repaired_before_the_replica_leads(
    cluster: Cluster, watcher: Watcher
) -> None:
    watcher.create_topic("found", [[1, 2, 3]], **SEGMENTS)
    fill(cluster, "found")
    cluster.brokers[1].stop()
    (path, *_) = segments(cluster, 1, "found")
    damage(path, 0.3, 30_000)
    path.with_suffix(".index").unlink()  # which makes a start go through the segment
    cluster.brokers[1].start()
    wait_until_repaired(cluster, watcher, "found")
    watcher.elect_preferred("found")
    assert watcher.leader("found") == 1
    assert consumed(cluster, "found") == values()


@IN_A_QUORUM
def test_the_same_damage_everywhere_is_told_and_the_rest_is_served(
    cluster: Cluster, watcher: Watcher
) -> None:
    watcher.create_topic("same", [[1, 2, 3]], **SEGMENTS)
    fill(cluster, "same")
    cluster.stop()
    for broker in cluster.brokers:
        damage_batch(segments(cluster, broker, "same")[:-1], 1_500)
    cluster.start()
    first, last = told_range(cluster, "same")
    assert consumed(cluster, "same", 0, first) == values()[:first]
    assert consumed(cluster, "same", last) == values()[last:]
    watcher.wait_until(lambda: watcher.in_sync("same") == {1, 2, 3})
    with Load(cluster.bootstrap_servers, "same", 1) as load:
        load.goes_on()


@IN_A_QUORUM
def test_a_leader_checks_what_a_follower_refuses(cluster: Cluster, watcher: Watcher) -> None:
    watcher.create_topic("refused", [[1, 2, 3]], **SEGMENTS)
    fill(cluster, "refused")
    set_scrub_interval(cluster, "-1")
    try:
        cluster.brokers[3].stop()
        shutil.rmtree(segments(cluster, 3, "refused")[0].parent)
        damage_batch(segments(cluster, 1, "refused")[:-1], 1_500)
        cluster.brokers[3].start()
        wait_until_repaired(cluster, watcher, "refused")
    finally:
        set_scrub_interval(cluster, SCRUBBED["log.scrub.interval.ms"])
    assert consumed(cluster, "refused") == values()


def set_scrub_interval(cluster: Cluster, interval_ms: str) -> None:
    """Change the setting for all brokers while they run."""
    with ottla.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        brokers = ottla.ConfigResource.every_broker()
        admin.configs.alter({brokers: {"log.scrub.interval.ms": interval_ms}})


@IN_A_QUORUM
def test_a_reader_is_told_of_damage_in_the_only_replica(cluster: Cluster, watcher: Watcher) -> None:
    watcher.create_topic("alone", [[1]], min_insync_replicas="1", **SEGMENTS)
    fill(cluster, "alone")
    cluster.brokers[1].stop()
    damage_batch(segments(cluster, 1, "alone")[:-1], 1_500)
    for path in segments(cluster, 1, "alone"):
        path.with_suffix(".index").unlink()  # a start goes through the segments
    cluster.brokers[1].start()
    first, last = told_range(cluster, "alone")
    assert consumed(cluster, "alone", 0, first) == values()[:first]
    assert consumed(cluster, "alone", last) == values()[last:]
    with pytest.raises(AssertionError, match="INVALID_MSG"):
        consumed(cluster, "alone")
    with Load(cluster.bootstrap_servers, "alone", 1) as load:
        load.goes_on()


def told_range(cluster: Cluster, topic: str) -> tuple[int, int]:
    """Read all with Ottla's consumer, which must report damage; return the damaged offsets."""
    bad: list[range] = []
    good: list[int] = []
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    with ottla.Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        partition = ottla.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        while RECORDS - 1 not in good[-1:]:
            assert time.monotonic() < deadline, f"offset {good[-1:]}, and no error"
            try:
                good += [record.offset for record in consumer.poll(1_000, timeout=1)]
            except ottla.CorruptRecordError as error:
                bad.append(range(error.offset, error.next_offset))
                consumer.seek(partition, error.next_offset)
    assert bad, "nothing was damaged"
    damaged = [offset for one in bad for offset in one]
    assert sorted({*good, *damaged}) == list(range(RECORDS))
    return damaged[0], damaged[-1] + 1
