"""Producer ids, taken from blocks that the controller gives to this broker."""

import asyncio

from ottla.broker.metadata_store.embedded import EmbeddedMetadataStore


class ProducerIds:
    """Hands out ids that nobody else has."""

    def __init__(self, store: EmbeddedMetadataStore, broker_id: int, broker_epoch: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._next = 0
        self._end = 0
        self._one_at_a_time = asyncio.Lock()

    async def next(self) -> int:
        """Return an id that was never given out; asks for another block when this one is used."""
        async with self._one_at_a_time:
            if self._next == self._end:
                block = await self._store.execute(
                    lambda controller: controller.allocate_producer_ids(
                        self._broker_id, self._broker_epoch
                    )
                )
                self._next, self._end = block.first, block.end
            self._next += 1
            return self._next - 1
