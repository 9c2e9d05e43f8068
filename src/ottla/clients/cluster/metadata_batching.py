"""Questions about the cluster, put together: many may ask, and few requests go out.

At most one request of a kind is on its way. Whoever asks meanwhile is answered by the next one,
which asks for everything that was asked for until it leaves.
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
    """What cannot be asked for in one request."""

    is_for_all: bool
    allow_auto_creation: bool


class _Question(NamedTuple):
    """A request that has not left yet: the topics it asks for, and what will be answered."""

    topics: dict[str, None]
    answer: asyncio.Task[MetadataResponse]


class MetadataRequests:
    """Sends what is asked for. A request goes on if somebody who waits for it is cancelled."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._next: dict[_Kind, _Question] = {}
        self._turn: dict[_Kind, asyncio.Lock] = {}

    async def ask(
        self, topics: Collection[str] | None, *, allow_auto_creation: bool
    ) -> list[MetadataResponseTopic]:
        """Return these topics, or all if None, as a broker tells them from now on."""
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
    """Have looked at a failure though all who waited for it are gone: nobody has to be told."""
    if not answer.cancelled():
        answer.exception()
