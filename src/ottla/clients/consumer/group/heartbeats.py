"""Signs of life to the coordinator, for as long as the application shows some itself."""

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
"""How long a poll that waits has to show itself before the application counts as silent."""


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """Beats for one generation, whether the application polls at the moment or not."""

    requests: GroupRequests
    settings: ConsumerSettings
    polled_at: Callable[[], float]
    """When the application last polled, by the loop's time."""
    on_rebalance: Callable[[], None]
    wake: Callable[[], None]
    """Has a poll that waits for records show that it is there."""

    async def beat(self, generation: Generation) -> ApiError | None:
        """Beat until the coordinator is against it, which is returned.

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
