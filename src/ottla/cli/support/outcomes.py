"""The results of a command about several items."""

from collections.abc import Awaitable, Iterable
from typing import TypeVar

from ottla.clients.admin.per_item_results import ItemsFailedError
from ottla.model.api_error import ApiError

K = TypeVar("K")


async def outcomes_of(items: Iterable[K], call: Awaitable[object]) -> dict[K, ApiError | None]:
    """Wait for a call about items; return the error of each, if any."""
    failed: dict[K, ApiError] = {}
    try:
        await call
    except ItemsFailedError as error:
        failed = error.failed
    return {item: failed.get(item) for item in items}
