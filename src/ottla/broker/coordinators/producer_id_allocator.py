"""Producer ids, taken from blocks that the controller gives to this broker."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.machines.controller.producer_ids import ProducerIdBlock
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

_PASSING: Final = frozenset(
    {ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.STALE_BROKER_EPOCH}
)


class ProducerIds:
    """Assigns unique producer ids."""

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._one_at_a_time = asyncio.Lock()

    async def next(self) -> int:
        """Return an unused id; allocates the next block when this block is used up.

        ApiError COORDINATOR_LOAD_IN_PROGRESS, which producers retry, if the controller cannot be
        reached.
        """
        async with self._one_at_a_time:
            if self._next == self._end:
                self._next, self._end = await self._next_block()
            self._next += 1
            return self._next - 1

    async def _next_block(self) -> ProducerIdBlock:
        try:
            return await self._allocate()
        except ApiError as error:
            if error.code in _PASSING:
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.detail) from error
            raise
