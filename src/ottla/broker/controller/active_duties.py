"""The duties of the active controller that no request asks for: fencing, preferred leaders."""

import logging
import math
from functools import partial
from typing import Final

from ottla.broker.metadata_store.quorum.store import QuorumMetadataStore
from ottla.concurrency.first_of import pause_seconds
from ottla.environment.clock import Clock
from ottla.machines.controller.machine import Controller
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

LOOK_SECONDS: Final = 0.5
_log = logging.getLogger(__name__)


class ActiveDuties:
    """Runs in every controller, and decides while it is active. Belongs to one event loop."""

    def __init__(
        self,
        store: QuorumMetadataStore,
        clock: Clock,
        *,
        rebalance_seconds: float = math.inf,
        imbalance_percentage: int = 0,
    ) -> None:
        self._store = store
        self._clock = clock
        self._rebalance_seconds = rebalance_seconds
        self._imbalance_percentage = imbalance_percentage

    async def run(self) -> None:
        """Look around until cancelled."""
        rebalance_ms = self._next_rebalance_ms()
        while True:
            await pause_seconds(self._seconds_to_expiry())
            if not self._store.is_active:
                rebalance_ms = self._next_rebalance_ms()
                continue
            try:
                await self._fence_silent_brokers()
                if self._clock.monotonic_ms() >= rebalance_ms:
                    rebalance_ms = self._next_rebalance_ms()
                    prefer = partial(
                        Controller.prefer_leaders, percentage=self._imbalance_percentage
                    )
                    await self._store.execute(prefer)
            except ApiError as error:
                if error.code != ErrorCode.NOT_CONTROLLER:
                    raise
                _log.debug("not active any more: %s", error)

    async def _fence_silent_brokers(self) -> None:
        while self._seconds_to_expiry() <= 0:
            broker_id = await self._store.execute(
                lambda controller: controller.fence_expired(self._clock.monotonic_ms())
            )
            if broker_id is None:
                return
            _log.warning("broker %d is silent for a session, and fenced", broker_id)

    def _seconds_to_expiry(self) -> float:
        """Return the time to the next end of a broker's session, or to the next look around."""
        expiry_ms = self._store.next_expiry_ms
        if expiry_ms is None:
            return LOOK_SECONDS
        left_seconds = (expiry_ms - self._clock.monotonic_ms()) / 1000
        return min(max(left_seconds, 0.0), LOOK_SECONDS)

    def _next_rebalance_ms(self) -> float:
        return self._clock.monotonic_ms() + self._rebalance_seconds * 1000
