"""Notes survive compaction: the remaining records give the same state."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from ottla import Admin, ConfigResource, Producer
from ottla.pipelines.mirror.clusters import Clusters
from ottla.pipelines.mirror.offset_syncs import (
    KnownCopies,
    MirroredTopic,
    OffsetSyncsReader,
    Position,
    Run,
    Runs,
    note_of,
    position_note,
    runs_note,
    topic_note,
)
from ottla.pipelines.mirror.options import MirrorOptions
from ottla.pipelines.topics.committed_topic_reader import CommittedTopicReader
from ottla.testing import Broker
from ottla.wire.records.record import Record
from tests.pipelines.mirror.mirroring import (
    SETTINGS,
    contents,
    mirror,
    options_of,
    records_by_partition,
)

COMPACTION_SECONDS_MAX = 120
EAGER = {"min.cleanable.dirty.ratio": "0.01", "segment.ms": "200", "delete.retention.ms": "0"}


@pytest.fixture
def target() -> Iterator[str]:
    """A broker that compacts all the time."""
    with Broker({**SETTINGS, "log.cleaner.backoff.ms": "100"}) as broker:
        yield broker.bootstrap_servers


async def read_afresh(options: MirrorOptions) -> tuple[str, KnownCopies]:
    async with Clusters(options) as clusters:
        notes = OffsetSyncsReader(CommittedTopicReader(clusters.notes_topic))
        return clusters.notes_topic, await notes.read_on(clusters.target)


def test_what_is_noted_can_be_read_again() -> None:
    topic = MirroredTopic("eu.orders", "an id", "orders", "another id", ("A", "B"), 3)
    position = Position("an id", 2, 55, 44, 3333)
    runs = Runs("an id", 2, 40, (Run(40, 31, 5), Run(47, 36, 8)))
    for key, value in (topic_note(topic), position_note(position), runs_note(runs)):
        found = note_of(Record(0, 0, key, value))
        assert found in {topic, position, runs}
    taken_back = note_of(Record(0, 0, runs_note(runs)[0], None))
    assert taken_back == Runs("an id", 2, 40, ())


def test_compaction_takes_old_positions_and_no_others(source: str, target: str) -> None:
    check_compaction(source, target, "orders")


def check_compaction(source: str, target: str, topic: str) -> None:
    """Copy record by record until notes have been compacted, and check them each time."""
    options = options_of(source, target, topic)
    written = 0
    deadline = time.monotonic() + COMPACTION_SECONDS_MAX
    while True:
        with Producer(bootstrap_servers=source) as producer:
            producer.send(topic, b"%d" % written)
        following = mirror(options)
        written += 1
        notes_topic, known = asyncio.run(read_afresh(options))
        assert known.positions == following._notes.known.positions
        assert [row.records for row in known.positions.values()] == [written]
        if written == 1:
            with Admin(bootstrap_servers=target) as admin:
                admin.configs.alter({ConfigResource.topic(notes_topic): EAGER})
        if len(records_by_partition(target, notes_topic)[0]) < 2 * written:
            break  # there would be two and the topic's own, if none had been taken
        assert time.monotonic() < deadline, "nothing was compacted"
    mirror(options)
    assert contents(target, topic) == contents(source, topic)
