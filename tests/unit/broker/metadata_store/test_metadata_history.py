"""A controller's decisions reach followers, as batches of records or as a whole image."""

from collections.abc import Sequence

import pytest

from ottla.broker.metadata_store import metadata_history
from ottla.broker.metadata_store.metadata_history import (
    Batches,
    MetadataFeed,
    Snapshot,
    first_offset,
    image_of,
    next_image,
)
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import ConfigRecord, MetadataRecord, RemoveTopicRecord, TopicRecord
from ottla.metadata.replay import replay
from ottla.wire.protocol_error import ProtocolError
from tests.metadata_building import CLUSTER_ID, uuid_of

EPOCH = 3


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"t{number}", topic_id=uuid_of(number))


def setting(value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=4, resource_name="", name="a", value=value)


def beginning(*records: MetadataRecord) -> MetadataFeed:
    start = ClusterImage(CLUSTER_ID, end_offset=first_offset(EPOCH))
    return MetadataFeed(EPOCH, replay(start, records, start.end_offset + len(records)), 1000)


def decide(feed: MetadataFeed, *records: MetadataRecord) -> None:
    feed.add(records, replay(feed.image, records, feed.end_offset + len(records)), 2000)


def follow(image: ClusterImage, feed: MetadataFeed) -> ClusterImage:
    """Read the feed once, as a follower with an image of the feed's term."""
    pulled = feed.read(feed.epoch, image.end_offset)
    assert pulled is not None
    return next_image(image, pulled)[0]


def test_a_follower_comes_to_the_same_images() -> None:
    feed = beginning(topic(1))
    image = feed.image
    decide(feed, topic(2), setting("1"))
    image = follow(image, feed)
    assert image == feed.image
    decide(feed, RemoveTopicRecord(topic_id=uuid_of(1)))
    decide(feed, topic(3))
    assert follow(image, feed) == feed.image


def test_there_is_nothing_after_the_end() -> None:
    feed = beginning(topic(1))
    assert feed.read(EPOCH, feed.end_offset) == Batches(EPOCH, b"")
    assert follow(feed.image, feed) == feed.image


def test_a_follower_of_another_term_or_of_none_takes_a_snapshot() -> None:
    feed = beginning(topic(1))
    decide(feed, topic(2), topic(3))
    assert feed.read(EPOCH - 1, feed.end_offset) is None
    assert feed.read(EPOCH + 1, feed.end_offset) is None
    assert feed.read(EPOCH, feed.end_offset + 1) is None
    assert feed.read(EPOCH, feed.end_offset - 1) is None  # in the middle of a decision
    assert feed.read(EPOCH, 0) is None
    snapshot = feed.snapshot()
    assert image_of(CLUSTER_ID, snapshot) == feed.image
    assert (snapshot.epoch, snapshot.end_offset) == (EPOCH, feed.end_offset)


def test_a_term_begins_after_all_that_an_earlier_one_can_have_decided() -> None:
    assert first_offset(EPOCH) + 2**32 <= first_offset(EPOCH + 1)


def test_old_decisions_are_let_go_of_and_new_ones_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_history, "KEPT_BYTES_MAX", 1000)
    feed = beginning()
    start = feed.image
    images = [start]
    for number in range(100):
        decide(feed, setting(str(number)))
        images.append(feed.image)
    assert feed.read(EPOCH, start.end_offset) is None
    kept = [one for one in images if feed.read(EPOCH, one.end_offset) is not None]
    assert 2 < len(kept) < 20
    assert all(follow(one, feed) == feed.image for one in kept)


def test_a_long_decision_goes_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_history, "RECORDS_PER_BATCH_MAX", 3)
    feed = beginning()
    image = feed.image
    decide(feed, *map(topic, range(8)))
    assert follow(image, feed) == feed.image
    assert image_of(CLUSTER_ID, feed.snapshot()) == feed.image


def test_a_listener_is_called_once_at_news_or_the_end() -> None:
    feed = beginning()
    called: list[str] = []
    feed.on_news(lambda: called.append("news"))
    decide(feed, topic(1))
    decide(feed, topic(2))
    assert called == ["news"]
    feed.on_news(lambda: called.append("end"))
    feed.close()
    assert called == ["news", "end"]
    assert feed.is_closed


def damaged(data: bytes) -> Sequence[bytes]:
    flipped = bytearray(data)
    flipped[-1] ^= 1
    return [bytes(flipped), b"\0" * 70]


def test_what_does_not_follow_is_one_error_and_changes_nothing() -> None:
    feed = beginning()
    start = feed.image
    decide(feed, topic(1))
    middle = feed.image
    decide(feed, topic(2))
    last = feed.read(EPOCH, middle.end_offset)
    assert last is not None
    with pytest.raises(ProtocolError, match="comes next"):
        next_image(start, last)
    for data in damaged(last.data):
        with pytest.raises(ProtocolError):
            next_image(middle, Batches(EPOCH, data))
    twice = beginning()
    decide(twice, topic(1))
    again = twice.read(EPOCH, start.end_offset)
    assert again is not None
    with pytest.raises(ProtocolError, match="exists already"):
        next_image(replay(start, [topic(1)], start.end_offset), again)
    for data in damaged(feed.snapshot().data):
        with pytest.raises(ProtocolError):
            image_of(CLUSTER_ID, Snapshot(EPOCH, 9, data))
