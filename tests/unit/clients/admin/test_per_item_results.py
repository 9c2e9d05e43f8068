"""Calls of the admin client that end without a result."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

from ottla.clients.admin.per_item_results import in_time
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.rpc.errors import NoResponseError
from ottla.simulation.world.world import World

if TYPE_CHECKING:
    from ottla.clients.cluster.cluster_client import ClusterView

T = TypeVar("T")


class RetryingView:
    """The part of a view that `in_time` uses: it tries again at once."""

    settings = SimpleNamespace(timeout_ms=1000)

    async def retried(self, attempt: Callable[[], Awaitable[T]], **_limits: Any) -> T:
        while True:
            try:
                return await attempt()
            except ApiError:
                continue


def test_a_call_that_ends_during_an_attempt_names_the_failure_before_it() -> None:
    attempts: list[int] = []

    async def attempt() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "controller 1 knows no leader")
        await asyncio.sleep(60)

    async def told() -> None:
        with pytest.raises(NoResponseError, match=r"within 1 s; .* controller 1 knows no leader"):
            await in_time(cast("ClusterView", RetryingView()), attempt)

    World(0).run(told())


def test_a_call_that_ends_during_its_first_attempt_says_only_that() -> None:
    async def told() -> None:
        with pytest.raises(NoResponseError, match=r"not over within 1 s$"):
            await in_time(cast("ClusterView", RetryingView()), lambda: asyncio.sleep(60))

    World(0).run(told())
