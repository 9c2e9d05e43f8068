"""Batches are copied between brokers: none lost, none doubled, none changed."""

import asyncio
import random
import threading
from pathlib import Path

import pytest

from ottla import Admin, Producer, TopicPartition
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.pipelines.mirror import copying, planning
from ottla.pipelines.mirror.batches import Piece, pieces_of
from ottla.pipelines.mirror.clusters import Clusters
from ottla.pipelines.mirror.copying import CopyRange, PartitionCopier
from ottla.pipelines.mirror.offset_syncs import OffsetSyncsReader
from ottla.pipelines.mirror.options import MirrorError
from ottla.pipelines.mirror.planning import Planner
from ottla.pipelines.mirror.running import Following
from ottla.pipelines.mirror.writing import TargetTransaction
from ottla.pipelines.topics.batch_fetcher import BatchFetcher
from ottla.pipelines.topics.committed_topic_reader import CommittedTopicReader
from ottla.testing import Broker
from tests.pipelines.mirror.mirroring import (
    SETTINGS,
    Truth,
    contents,
    copy_all,
    mirror,
    options_of,
    records_by_partition,
)

WAIT_SECONDS_MAX = 240
"""Less than a call has time by default."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def make_topic(servers: str, name: str, partitions: int = 1, **configs: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        admin.topics.create(name, partitions=partitions, configs=named)


def send(servers: str, topic: str, count: int, partitions: int = 1, **settings: object) -> None:
    with Producer(settings, bootstrap_servers=servers) as producer:
        for number in range(count):
            producer.send(
                topic,
                None if number % 97 == 13 else b"value %d" % number,
                key=None if number % 5 == 0 else b"key %d" % number,
                headers=[("trace", b"%d" % number), ("empty", None)],
                timestamp=1_700_000_000_000 + number,
                partition=number % partitions,
            )
        producer.flush()


def transactions(servers: str, topic: str, count: int, dice: random.Random) -> None:
    """Write transactions of some records each, of which about a third are aborted."""
    with Producer(bootstrap_servers=servers, transactional_id=f"{topic} writer") as producer:
        producer.init_transactions()
        for number in range(count):
            producer.begin_transaction()
            for part in range(dice.randint(1, 6)):
                producer.send(topic, b"%d of transaction %d" % (part, number), partition=0)
            producer.flush()
            if dice.random() < 0.35:
                producer.abort_transaction()
            else:
                producer.commit_transaction()


async def raw_records(servers: str, topic: str) -> list[bytes]:
    """Return the records of each batch as they are stored, without the headers of the batches."""
    view = ClusterView(options_of(servers, servers, topic).source_settings)
    async with view, BatchFetcher(view, TopicPartition(topic, 0)) as fetcher:
        pieces: list[Piece] = []
        fetched = await fetcher.fetch(0)
        while fetched.data:
            offset = pieces[-1].end_offset if pieces else 0
            pieces += pieces_of(fetched.data, offset, fetched.aborted)
            fetched = await fetcher.fetch(pieces[-1].end_offset)
        return [bytes(piece.raw[61:]) for piece in pieces if piece.record_count]


def test_records_arrive_with_keys_headers_and_times(source: str, target: str) -> None:
    make_topic(source, "letters", 3)
    for codec in CODECS:
        send(source, "letters", 300, 3, compression_type=codec, linger_ms=20)
    mirror(options_of(source, target, "letters"))
    arrived = contents(target, "letters")
    assert arrived == contents(source, "letters")
    assert sum(map(len, arrived.values())) == 300 * len(CODECS)


def test_the_records_of_a_batch_are_not_touched(source: str, target: str) -> None:
    make_topic(source, "sealed")
    for codec in CODECS:
        send(source, "sealed", 200, compression_type=codec, linger_ms=20)
    mirror(options_of(source, target, "sealed"))
    sent = asyncio.run(raw_records(source, "sealed"))
    assert len(sent) >= len(CODECS)
    assert asyncio.run(raw_records(target, "sealed")) == sent


@pytest.mark.parametrize("runs_max", [copying.RUNS_MAX, 7])
def test_aborted_transactions_stay_behind_and_every_offset_is_translated(
    source: str, target: str, runs_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "RUNS_MAX", runs_max)
    seed = random.randrange(1 << 30)
    print("seed", seed)  # noqa: T201 - to have the same again
    make_topic(source, "paid")
    send(source, "paid", 50)
    transactions(source, "paid", 80, random.Random(seed))
    send(source, "paid", 7)
    following = mirror(options_of(source, target, "paid"))
    here, there = (records_by_partition(servers, "paid")[0] for servers in (source, target))
    translated = following._maps.of(following._copies[0].ident, 0)
    assert (len(translated.notes) > 3) == (runs_max == 7)
    truth = Truth(here, there)
    for offset in range(max(here) + 20):
        assert translated.translate(offset) == truth.translate(offset), offset


def test_ranges_that_end_inside_a_batch_split_none(source: str, target: str) -> None:
    make_topic(source, "long")
    send(source, "long", 2_000, linger_ms=50, batch_size=4_000)
    options = options_of(source, target, "long", range_bytes=700)
    with Following(options):
        plans = asyncio.run(copy_all(options))
    assert len(plans) > 10, "the test is about many ranges"
    assert contents(target, "long") == contents(source, "long")
    batches = asyncio.run(raw_records(target, "long"))
    assert batches == asyncio.run(raw_records(source, "long"))


def test_a_log_that_begins_inside_a_batch_is_copied_from_there(source: str, target: str) -> None:
    make_topic(source, "trimmed")
    send(source, "trimmed", 100, linger_ms=50, compression_type="zstd")
    with Admin(bootstrap_servers=source) as admin:
        admin.offsets.delete_before({TopicPartition("trimmed", 0): 37})
    following = mirror(options_of(source, target, "trimmed"))
    arrived = contents(target, "trimmed")[0]
    assert len(arrived) == 63
    assert arrived == contents(source, "trimmed")[0]
    assert following._maps.of(following._copies[0].ident, 0).translate(40) == 3


def test_records_with_the_brokers_time_keep_it(source: str, target: str) -> None:
    make_topic(source, "stamped", message_timestamp_type="LogAppendTime")
    send(source, "stamped", 100, compression_type="lz4")
    mirror(options_of(source, target, "stamped"))
    assert contents(target, "stamped") == contents(source, "stamped")


def test_what_was_copied_is_not_copied_again(source: str, target: str) -> None:
    make_topic(source, "again", 2)
    send(source, "again", 100, 2)
    options = options_of(source, target, "again")
    mirror(options)
    mirror(options)  # with no memory of plans: as if Spark's checkpoint were lost
    send(source, "again", 60, 2)
    mirror(options)
    assert contents(target, "again") == contents(source, "again")


async def one_copier(options: object, topic: str, end: int) -> tuple[Clusters, PartitionCopier]:
    clusters = Clusters(options)  # type: ignore[arg-type]
    await clusters.meet()
    notes = OffsetSyncsReader(CommittedTopicReader(clusters.notes_topic))
    known = (await notes.read_on(clusters.target)).topics[topic]
    wanted = CopyRange(topic, known.source_id, topic, known.ident, 0, end)
    copier = PartitionCopier(clusters.source, clusters.target, wanted, notes, asyncio.Lock())
    return clusters, copier


def test_a_task_killed_before_the_commit_has_written_nothing(
    source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(source, "dying")
    send(source, "dying", 500)
    options = options_of(source, target, "dying")

    async def die(_: object) -> None:  # noqa: RUF029 - replaces a coroutine function
        raise KeyboardInterrupt

    async def half() -> None:
        clusters, copier = await one_copier(options, "dying", 500)
        try:
            await copier._copy_some()
        finally:
            clusters.close()

    with Following(options):
        with monkeypatch.context() as patch:
            patch.setattr(TargetTransaction, "commit", die)
            with pytest.raises(KeyboardInterrupt):
                asyncio.run(half())
        asyncio.run(copy_all(options))
    assert contents(target, "dying") == contents(source, "dying")


def test_a_task_killed_after_the_commit_is_not_repeated(source: str, target: str) -> None:
    make_topic(source, "done")
    send(source, "done", 500)
    options = options_of(source, target, "done")

    async def twice() -> None:
        for _ in range(2):
            clusters, copier = await one_copier(options, "done", 500)
            assert (await copier.copy()).records == 500
            clusters.close()

    with Following(options):
        asyncio.run(twice())
    assert contents(target, "done") == contents(source, "done")


def test_two_mirrors_at_once_do_nothing_twice(
    source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "TRANSACTION_BYTES_MAX", 4_000)
    make_topic(source, "contested")
    send(source, "contested", 3_000, linger_ms=0, batch_size=1_000)
    options = options_of(source, target, "contested")

    async def until_done() -> None:
        clusters, copier = await one_copier(options, "contested", 3_000)
        while True:
            try:
                await copier.copy()
                break
            except MirrorError as error:
                assert "another producer copies" in str(error)
        clusters.close()

    async def both() -> None:
        await asyncio.gather(until_done(), until_done())

    with Following(options):
        asyncio.run(both())
    assert contents(target, "contested") == contents(source, "contested")


def test_a_plan_is_about_as_large_as_was_asked_for(source: str, target: str) -> None:
    make_topic(source, "planned")
    send(source, "planned", 1_000, linger_ms=20)
    options = options_of(source, target, "planned", range_bytes=5_000)

    async def plan() -> list[int]:
        planner = Planner(options)
        start = await planner.ends({}, None)
        more = await planner.ends(start, None)
        (await planner._meet())[0].close()
        return [next(iter(ends.values()))["0"] for ends in (start, more)]

    with Following(options):
        first, second = asyncio.run(plan())
    assert 0 < first < second < 1_000
    assert second == 2 * first


def test_a_partition_without_a_leader_delays_no_other(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "LEADERLESS_MS_MAX", 300)
    folders = [tmp_path / "a", tmp_path / "b"]
    with Broker(SETTINGS | {"log.dirs": ",".join(map(str, folders))}) as source:
        make_topic(source.bootstrap_servers, "torn", partitions=2)
        send(source.bootstrap_servers, "torn", 100, partitions=2)
        led = next(number for number in "01" if (folders[0] / f"torn-{number}").exists())
        source.stop()
        folders[1].rename(tmp_path / "away")
        folders[1].touch()
        source.start()
        options = options_of(source.bootstrap_servers, target, "torn")

        async def plan() -> dict[str, int]:
            planner = Planner(options)
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                (ends,) = (await planner.ends({}, None)).values()
            (await planner._meet())[0].close()
            return ends

        with Following(options):
            assert asyncio.run(plan()) == {led: 50}


def test_a_source_that_ends_before_the_copy_is_an_error(source: str, target: str) -> None:
    make_topic(source, "lost")
    send(source, "lost", 100)
    options = options_of(source, target, "lost")
    mirror(options)

    async def beyond() -> None:
        clusters, copier = await one_copier(options, "lost", 1_000)
        try:
            async with BatchFetcher(clusters.source, TopicPartition("lost", 0)) as fetcher:
                await copier._fetched(fetcher, copying._Copied(500))
        finally:
            clusters.close()

    with pytest.raises(MirrorError, match="ends at offset 100, but was copied up to 500"):
        asyncio.run(beyond())


def test_notes_about_what_the_target_has_deleted_are_taken_back(source: str, target: str) -> None:
    make_topic(source, "old")
    options = options_of(source, target, "old")
    for _ in range(4):
        send(source, "old", 10)
        following = mirror(options)
    ident = following._copies[0].ident
    assert len(following._maps.of(ident, 0).notes) == 4
    start = min(offset for offset in records_by_partition(target, "old")[0] if offset > 25)
    with Admin(bootstrap_servers=target) as admin:
        admin.offsets.delete_before({TopicPartition("old", 0): start})
    mirror(options)
    last = mirror(options)._maps.of(ident, 0)
    assert list(last.notes) == [20, 30]
    assert last.translate(35) == following._maps.of(ident, 0).translate(35)


def test_brokers_that_go_and_come_back_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "TRANSACTION_BYTES_MAX", 2_000)
    with Broker(SETTINGS) as a, Broker(SETTINGS) as b:
        source, target = a.bootstrap_servers, b.bootstrap_servers
        make_topic(source, "patient", 2)
        send(source, "patient", 5_000, 2, batch_size=500)
        options = options_of(source, target, "patient")
        with Following(options):
            copying_it = threading.Thread(target=lambda: asyncio.run(copy_all(options)))
            copying_it.start()
            while not records_by_partition(target, "patient")[0]:
                pass
            for broker in (b, a, b):
                broker.restart()
            copying_it.join()
        assert contents(target, "patient") == contents(source, "patient")
