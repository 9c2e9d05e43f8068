"""Batches metadata requests: many callers, few requests.

At most one request of a kind is in flight. Callers that arrive meanwhile share the next request,
which asks for all topics collected until it is sent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple

from ottla.clients.threads.loop_thread import create_background_task
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

Ask = Callable[[MetadataRequest], Awaitable[MetadataResponse]]


class _Kind(NamedTuple):
    """The properties in which requests must agree to be combined."""

    is_for_all: bool
    allow_auto_creation: bool


class _Question(NamedTuple):
    """A request that is not sent yet: its topics, and the future of its response."""

    topics: dict[str, None]
    answer: asyncio.Task[MetadataResponse]


class MetadataRequests:
    """Sends batched requests. A request continues if a waiting caller is cancelled."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._next: dict[_Kind, _Question] = {}
        self._turn: dict[_Kind, asyncio.Lock] = {}

    async def ask(
        self, topics: Collection[str] | None, *, allow_auto_creation: bool
    ) -> list[MetadataResponseTopic]:
        """Return the metadata of these topics (None: all), from a request sent after this call."""
        kind = _Kind(topics is None, allow_auto_creation)
        question = self._next.get(kind)
        if question is None:
            asked: dict[str, None] = {}
            question = _Question(asked, create_background_task(self._send(kind, asked)))
            question.answer.add_done_callback(_heard)
            self._next[kind] = question
        wanted = dict.fromkeys(topics or ())
        question.topics.update(wanted)
        answer = await asyncio.shield(question.answer)
        return [topic for topic in answer.topics if topics is None or topic.name in wanted]

    async def _send(self, kind: _Kind, topics: dict[str, None]) -> MetadataResponse:
        async with self._turn.setdefault(kind, asyncio.Lock()):
            del self._next[kind]
            named = [MetadataRequestTopic(name=name) for name in topics]
            request = MetadataRequest(
                topics=None if kind.is_for_all else named,
                allow_auto_topic_creation=kind.allow_auto_creation,
            )
            return await self._ask(request)


def _heard(answer: asyncio.Task[MetadataResponse]) -> None:
    """Retrieve the exception, so that asyncio does not report it if all callers are gone."""
    if not answer.cancelled():
        answer.exception()
