"""Fetch sessions: partitions that a request repeats, and partitions that a broker remembers."""

from ottla.clients.consumer.fetching.fetch_session import Asked, ConsumerSession, version_max_for
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.model.identifiers import ZERO_UUID, TopicPartition
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchRequest

ID, OTHER_ID = b"i" * 16, b"o" * 16
ONE, TWO = TopicPartition("letters", 1), TopicPartition("letters", 2)
SETTINGS = ConsumerSettings(client_rack="r1", isolation_level="read_committed")


def asked(offset: int, topic_id: bytes = ID) -> Asked:
    return Asked(topic_id, offset, 4, 100)


def offsets(request: FetchRequest) -> dict[int, int]:
    return {p.partition: p.fetch_offset for topic in request.topics for p in topic.partitions}


def forgotten(request: FetchRequest) -> list[tuple[bytes, list[int]]]:
    return [(topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data]


def test_only_what_has_changed_is_told_again() -> None:
    session = ConsumerSession()
    request = session.request({ONE: asked(0), TWO: asked(0)}, SETTINGS, 1000)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert offsets(request) == {1: 0, 2: 0}
    assert (request.rack_id, request.isolation_level, request.max_bytes) == ("r1", 1, 1000)
    session.accept(77)
    request = session.request({ONE: asked(5), TWO: asked(0)}, SETTINGS, 1000)
    assert (request.session_id, request.session_epoch) == (77, 1)
    assert (offsets(request), forgotten(request)) == ({1: 5}, [])
    session.accept(77)
    request = session.request({ONE: asked(5)}, SETTINGS, 1000)
    assert (offsets(request), forgotten(request)) == ({}, [(ID, [2])])


def test_a_topic_made_anew_is_forgotten_under_its_old_id() -> None:
    session = ConsumerSession()
    session.request({ONE: asked(5)}, SETTINGS, 1000)
    session.accept(77)
    request = session.request({ONE: asked(0, OTHER_ID)}, SETTINGS, 1000)
    assert (offsets(request), forgotten(request)) == ({1: 0}, [(ID, [1])])
    assert session.name_of(FetchableTopicResponse(topic_id=OTHER_ID)) == "letters"


def test_after_a_failure_or_a_refusal_everything_is_told_anew() -> None:
    session = ConsumerSession()
    for end in (session.reset, lambda: session.accept(0)):
        session.request({ONE: asked(0)}, SETTINGS, 1000)
        session.accept(77)
        session.request({ONE: asked(0)}, SETTINGS, 1000)
        end()
        request = session.request({ONE: asked(0)}, SETTINGS, 1000)
        assert (request.session_id, request.session_epoch, offsets(request)) == (0, 0, {1: 0})


def test_ids_are_used_only_where_all_topics_have_one() -> None:
    assert version_max_for({ONE: asked(0)}, 17) == 17
    assert version_max_for({ONE: asked(0), TWO: asked(0, ZERO_UUID)}, 17) == 12
    assert version_max_for({TWO: asked(0, ZERO_UUID)}, 11) == 11
