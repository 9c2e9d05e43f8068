import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.rest.consumer_instances import IDLE_MS_MAX, ConsumerInstances
from ottla.rest.rest_errors import RestError
from ottla.runtime.randomness import SystemRandomness


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ms = 1_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def monotonic_ns(self) -> int:
        return self.ms * 1_000_000


def told(story: Callable[[ConsumerInstances, HandClock], Awaitable[None]]) -> None:
    async def run() -> None:
        clock = HandClock()
        settings = {"bootstrap.servers": "127.0.0.1:1"}
        instances = ConsumerInstances(settings, clock, SystemRandomness(), instances_max=2)
        try:
            await story(instances, clock)
        finally:
            await instances.close()

    asyncio.run(run())


def test_an_instance_expires_after_five_idle_minutes() -> None:
    async def story(instances: ConsumerInstances, clock: HandClock) -> None:
        instances.create("group", {"name": "one"})
        clock.ms += IDLE_MS_MAX - 1
        instances.expire()
        assert len(instances) == 1
        clock.ms += 1
        instances.expire()
        with pytest.raises(RestError) as refused:
            async with instances.using("group", "one"):
                pass
        assert refused.value.code == 40403

    told(story)


def test_a_request_starts_the_five_minutes_again() -> None:
    async def story(instances: ConsumerInstances, clock: HandClock) -> None:
        instances.create("group", {"name": "one"})
        clock.ms += IDLE_MS_MAX - 1
        async with instances.using("group", "one"):
            clock.ms += IDLE_MS_MAX
            instances.expire()
        clock.ms += IDLE_MS_MAX - 1
        instances.expire()
        assert len(instances) == 1

    told(story)


def test_the_number_of_instances_is_bounded() -> None:
    async def story(instances: ConsumerInstances, _: HandClock) -> None:
        await asyncio.sleep(0)
        instances.create("group", {})
        instances.create("group", {})
        with pytest.raises(RestError, match="delete one first") as refused:
            instances.create("group", {})
        assert refused.value.status == 429

    told(story)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"name": "one"}, 40902),
        ({"name": "a/b"}, 42204),
        ({"name": "x" * 201}, 42204),
        ({"format": "xml"}, 42204),
        ({"auto.offset.reset": "never"}, 42204),
        ({"bootstrap.servers": "elsewhere:9092"}, 42204),
        ({"consumer.request.timeout.ms": "soon"}, 42204),
    ],
)
def test_invalid_settings_are_refused(given: dict[str, str], code: int) -> None:
    async def story(instances: ConsumerInstances, _: HandClock) -> None:
        await asyncio.sleep(0)
        instances.create("group", {"name": "one"})
        with pytest.raises(RestError) as refused:
            instances.create("group", given)
        assert refused.value.code == code
        assert len(instances) == 1

    told(story)
