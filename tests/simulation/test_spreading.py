"""A client that gets the response to a topic change finds the change at every live broker."""

from typing import Any

from ottla.broker.controller.metadata_propagation import SILENT_MS, SPREAD_MS_MAX
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.schema import Message
from tests.metadata_building import new_topic
from tests.simulation.speaking_brokers import Speakers, tell

SLOW_SECONDS = 0.3
TIMEOUT_MS = 30_000


def to_a_follower(speakers: Speakers) -> Any:
    """Return the link over which a broker gets the controller's decisions."""
    ways = speakers.world.network
    return ways.link(f"b{speakers.controller}", f"b{speakers.others[0]}")


def make(name: str, timeout_ms: int = TIMEOUT_MS, **fields: bool) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[new_topic(name, 1, 1)], timeout_ms=timeout_ms, **fields)


async def seconds_of(speakers: Speakers, request: Message, version: int = 7) -> float:
    """Ask the controller, and return how long it took."""
    began = speakers.world.loop.time()
    await speakers.ask(speakers.controller, version, request)
    return speakers.world.loop.time() - began


def test_all_brokers_have_applied_a_topic_change_at_its_response() -> None:
    async def story(speakers: Speakers) -> None:
        to_a_follower(speakers).delay_seconds = SLOW_SECONDS

        def topics() -> list[Any]:
            return [speakers.image(one).topics.get("t") for one in speakers.ids]

        await speakers.ask(speakers.controller, 7, make("t"))
        assert all(topics())
        wanted = CreatePartitionsTopic(name="t", count=5, assignments=None)
        more = CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
        await speakers.ask(speakers.controller, 3, more)
        assert [len(topic.partitions) for topic in topics()] == [5, 5, 5]
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=TIMEOUT_MS)
        await speakers.ask(speakers.controller, 6, gone)
        assert topics() == [None, None, None]

    tell(story)


def test_a_change_through_another_broker_is_visible_everywhere() -> None:
    async def story(speakers: Speakers) -> None:
        to_a_follower(speakers).delay_seconds = SLOW_SECONDS
        assert await speakers.create(speakers.others[1], "t") == ErrorCode.NONE
        assert all("t" in speakers.image(one).topics for one in speakers.ids)

    tell(story)


def test_no_wait_is_longer_than_the_timeout_or_a_second() -> None:
    async def story(speakers: Speakers) -> None:
        to_a_follower(speakers).is_blocked = True
        short = await seconds_of(speakers, make("t", timeout_ms=200))
        long = await seconds_of(speakers, make("u"))
        assert 0.2 <= short < 0.3
        assert SPREAD_MS_MAX / 1000 <= long < SPREAD_MS_MAX / 1000 + 0.1

    tell(story)


def test_refused_and_validated_requests_wait_for_no_broker() -> None:
    async def story(speakers: Speakers) -> None:
        await speakers.ask(speakers.controller, 7, make("t"))
        to_a_follower(speakers).is_blocked = True
        assert await seconds_of(speakers, make("t")) < 0.1
        assert await seconds_of(speakers, make("u", validate_only=True)) < 0.1

    tell(story)


def test_a_dead_broker_is_not_waited_for_although_its_session_lasts() -> None:
    async def story(speakers: Speakers) -> None:
        dead = speakers.others[0]
        speakers.kill(dead)
        await speakers.world.elapse(SILENT_MS / 1000)
        assert await seconds_of(speakers, make("t")) < 0.1
        assert not speakers.image(speakers.controller).brokers[dead].is_fenced

    tell(story)
