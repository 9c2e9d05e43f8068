"""Many concurrent callers ask for metadata, and few requests are sent."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.clients.cluster.cluster_client import MetadataRequests
from ottla.clients.errors import UnreachableError
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic


class Asked:
    """Responds to each request when the test says so."""

    def __init__(self) -> None:
        self.requests: list[list[str | None] | None] = []
        self.answers: list[asyncio.Future[None]] = []

    async def __call__(self, request: MetadataRequest) -> MetadataResponse:
        topics = None if request.topics is None else [topic.name for topic in request.topics]
        self.requests.append(topics)
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[-1]
        names = topics if topics is not None else ["a", "b", "c"]
        return MetadataResponse(topics=[MetadataResponseTopic(name=name) for name in names])


def run(work: Callable[[MetadataRequests, Asked], Awaitable[None]]) -> None:
    async def both() -> None:
        asked = Asked()
        await work(MetadataRequests(asked), asked)

    asyncio.run(both())


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_callers_during_a_request_share_the_next() -> None:
    async def work(requests: MetadataRequests, asked: Asked) -> None:
        first = asyncio.ensure_future(requests.ask(["a"], allow_auto_creation=False))
        await settled()
        later = [
            asyncio.ensure_future(requests.ask([name], allow_auto_creation=False))
            for name in ("a", "b", "c", "b")
        ]
        await settled()
        assert asked.requests == [["a"]]
        asked.answers[0].set_result(None)
        assert [topic.name for topic in await first] == ["a"]
        await settled()
        assert asked.requests == [["a"], ["a", "b", "c"]]
        asked.answers[1].set_result(None)
        found = [[topic.name for topic in await row] for row in later]
        assert found == [["a"], ["b"], ["c"], ["b"]]

    run(work)


def test_all_topics_and_made_topics_are_asked_for_on_their_own() -> None:
    async def work(requests: MetadataRequests, asked: Asked) -> None:
        rows = [
            asyncio.ensure_future(requests.ask(None, allow_auto_creation=False)),
            asyncio.ensure_future(requests.ask(["a"], allow_auto_creation=True)),
            asyncio.ensure_future(requests.ask(["a"], allow_auto_creation=False)),
        ]
        await settled()
        assert asked.requests == [None, ["a"], ["a"]]
        for answer in asked.answers:
            answer.set_result(None)
        assert [len(await row) for row in rows] == [3, 1, 1]

    run(work)


def test_a_cancelled_caller_leaves_the_response_to_the_others() -> None:
    async def work(requests: MetadataRequests, asked: Asked) -> None:
        leaving = asyncio.ensure_future(requests.ask(["a"], allow_auto_creation=False))
        staying = asyncio.ensure_future(requests.ask(["b"], allow_auto_creation=False))
        await settled()
        leaving.cancel()
        await settled()
        asked.answers[0].set_result(None)
        assert [topic.name for topic in await staying] == ["b"]

    run(work)


def test_a_failure_is_everybodys_and_the_next_request_is_a_new_one() -> None:
    async def work(requests: MetadataRequests, asked: Asked) -> None:
        both = [
            asyncio.ensure_future(requests.ask([name], allow_auto_creation=False)) for name in "ab"
        ]
        await settled()
        asked.answers[0].set_exception(UnreachableError("gone"))
        for row in both:
            with pytest.raises(UnreachableError, match="gone"):
                await row
        again = asyncio.ensure_future(requests.ask(["a"], allow_auto_creation=False))
        await settled()
        asked.answers[1].set_result(None)
        assert len(await again) == 1

    run(work)
