"""A member's work between two rebalances: heartbeats, and periodic checks of the topics."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from logging import getLogger

from ottla.clients.consumer.group.group_requests import Generation, GroupRequests
from ottla.clients.consumer.group.heartbeats import Heartbeats
from ottla.clients.consumer.group.joining import Joined
from ottla.clients.consumer.group.member_state import LOST, MemberState
from ottla.clients.consumer.group.topic_watch import TopicWatch
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.errors import NoAnswerError, UnreachableError
from ottla.clients.threads.loop_thread import create_background_task
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

_log = getLogger(__name__)


class HeartbeatTasks:
    """Two tasks for one generation; they report to the MemberState."""

    def __init__(
        self,
        requests: GroupRequests,
        settings: ConsumerSettings,
        standing: MemberState,
        watch: TopicWatch,
        polled_at: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._requests = requests
        self._settings = settings
        self._standing = standing
        self._watch = watch
        self._beating = Heartbeats(requests, settings, polled_at, self._on_rebalance, wake)
        self._tasks: list[asyncio.Task[None]] = []
        self._leaving: asyncio.Task[None] | None = None

    def start(self, joined: Joined) -> None:
        """Start both tasks, right after joining."""
        self._watch.shared_out = joined.shared_out
        self._tasks = [
            create_background_task(self._beat(joined.generation)),
            create_background_task(self._look_around()),
        ]

    async def stop(self) -> None:
        """Stop both tasks before joining or leaving, and await a LeaveGroup in flight."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            await asyncio.wait([leaving])

    async def leave(self, generation: Generation, reason: str) -> None:
        """Send LeaveGroup, except for static members, which keep their place. Never fails."""
        if not generation.member_id or self._requests.instance_id is not None:
            return
        with suppress(ApiError, UnreachableError, NoAnswerError):
            await self._requests.leave(generation, reason)

    async def _beat(self, generation: Generation) -> None:
        error = await self._beating.beat(generation)
        if error is None:
            self._leave_for_silence()
        elif error.code in LOST:
            reason = f"a heartbeat was answered with {error.code.name}"
            self._standing.lose(error.code, reason)
        else:
            self._standing.fail(error)

    def _leave_for_silence(self) -> None:
        _log.warning(
            "group %r: this consumer has not polled for %d ms, which is max.poll.interval.ms. It "
            "leaves, so that others go on with its partitions, and joins again with the next poll. "
            "Raise max.poll.interval.ms, or lower max.poll.records",
            self._requests.group_id,
            self._settings.max_poll_interval_ms,
        )
        reason = "the time between two polls was longer than max.poll.interval.ms"
        self._leaving = create_background_task(self.leave(self._standing.generation, reason))
        self._standing.lose(ErrorCode.UNKNOWN_MEMBER_ID, reason)

    async def _look_around(self) -> None:
        self._standing.request_rejoin(await self._watch.changed())

    def _on_rebalance(self) -> None:
        self._standing.request_rejoin("the group is rebalancing")
