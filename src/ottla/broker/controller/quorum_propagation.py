"""Delays responses of the active controller until the brokers have its decision.

A client that learns of a new topic may ask any broker for it next. Each broker tells its high
watermark with every fetch of the metadata log. The response does not wait long, and not for fenced,
stopping or silent brokers.
"""

from collections.abc import Callable, Iterable
from typing import Final

from ottla.broker.controller.metadata_propagation import SPREAD_MS_MAX
from ottla.broker.metadata_store.quorum.store import QuorumMetadataStore
from ottla.broker.quorum.metadata_replica import MetadataReplica
from ottla.concurrency.first_of import pause_seconds
from ottla.environment.clock import Clock
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, Offset

SILENT_MS: Final = 1_500
"""A replica that follows fetches more often than this, unless a fetch brings very much."""
LOOK_SECONDS: Final = 0.003


class QuorumPropagation:
    """Knows which brokers have the decisions of this controller. Belongs to one event loop."""

    def __init__(
        self,
        node_id: BrokerId,
        store: QuorumMetadataStore,
        replica: MetadataReplica,
        clock: Clock,
        own_offset: Callable[[], Offset | None],
    ) -> None:
        """`own_offset` is the end offset of this node's broker; None if it is only a controller."""
        self._node_id = node_id
        self._store = store
        self._replica = replica
        self._clock = clock
        self._own_offset = own_offset

    async def spread(self, codes: Iterable[int], timeout_ms: int) -> None:
        """Return when all listening brokers have the present image, or time is over."""
        if not self._store.is_active or ErrorCode.NONE not in codes:
            return
        deadline_ms = self._clock.monotonic_ms() + min(timeout_ms, SPREAD_MS_MAX)
        end_offset = self._store.image.end_offset
        while self._is_awaited(end_offset) and self._clock.monotonic_ms() < deadline_ms:
            await pause_seconds(LOOK_SECONDS)

    def _is_awaited(self, end_offset: Offset) -> bool:
        if not self._store.is_active:
            return False
        own_offset = self._own_offset()
        if own_offset is not None and own_offset < end_offset:
            return True
        since_ms = self._clock.monotonic_ms() - SILENT_MS
        fetched = self._replica.fetched()
        return any(
            broker.is_active
            and broker.broker_id != self._node_id
            and (known := fetched.get(broker.broker_id)) is not None
            and known.heard_ms >= since_ms
            and 0 <= known.high_watermark < end_offset
            for broker in self._store.image.brokers.values()
        )
