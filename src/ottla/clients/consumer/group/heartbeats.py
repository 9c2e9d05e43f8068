"""Heartbeats to the coordinator, while the application polls within max.poll.interval.ms."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.clients.consumer.group.group_requests import Generation, GroupRequests
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.errors import RETRIABLE, UnreachableError
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

WAKING_MS: Final = 50
"""The time for a waiting poll to report itself before the application counts as silent."""


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """Sends the heartbeats of one generation, independent of polls."""

    requests: GroupRequests
    settings: ConsumerSettings
    polled_at: Callable[[], float]
    """The time of the application's last poll, on the loop's clock."""
    on_rebalance: Callable[[], None]
    wake: Callable[[], None]
    """Makes a poll that waits for records update `polled_at`."""

    async def beat(self, generation: Generation) -> ApiError | None:
        """Send heartbeats until the coordinator returns a final error; return that error.

        None if the application has not polled for max.poll.interval.ms.
        """
        wait_ms = float(self.settings.heartbeat_interval_ms)
        while True:
            await pause(min(wait_ms, self._patience_ms()))
            self.wake()
            if self._patience_ms() <= 0:
                await pause(WAKING_MS)
                if self._patience_ms() <= 0:
                    return None
            wait_ms = self.requests.view.settings.retry_backoff_ms
            try:
                async with asyncio.timeout(self.settings.session_timeout_ms / 1000):
                    await self.requests.beat(generation)
                wait_ms = self.settings.heartbeat_interval_ms
            except (UnreachableError, TimeoutError):
                self.requests.view.forget_coordinator(self.requests.group_id)
            except ApiError as error:
                if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                    wait_ms = self.settings.heartbeat_interval_ms
                    self.on_rebalance()
                elif error.code not in RETRIABLE:
                    return error

    def _patience_ms(self) -> float:
        silent_ms = 1000 * (asyncio.get_running_loop().time() - self.polled_at())
        return max(0.0, self.settings.max_poll_interval_ms - silent_ms)
