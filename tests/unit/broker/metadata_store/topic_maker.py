"""A process that creates topics for ever, and prints each name after the response."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

from ottla.broker.metadata_store.embedded.store import EmbeddedMetadataStore
from ottla.machines.controller.settings import ControllerSettings
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import KernelDisk
from ottla.runtime.randomness import SystemRandomness
from tests.metadata_building import ENDPOINT, new_broker, new_topic

AT_ONCE = 3


async def make_topics(path: str, prefix: str) -> None:
    """Let a few clients create topics, one after the other each."""
    dice = SystemRandomness()
    with ThreadPoolExecutor(1) as threads:
        store = EmbeddedMetadataStore.open(
            KernelDisk(),
            [path],
            ControllerSettings(broker_id=0),
            clock=SystemClock(),
            randomness=dice,
            threads=threads,
        )
        await store.execute(lambda c: c.register_broker(new_broker(0, dice.uuid(), ENDPOINT)))

        async def client(number: int) -> None:
            for count in range(10_000):
                topic = new_topic(f"{prefix}-{number}-{count}", 3, retention_ms=str(count))
                (result,) = await store.execute(
                    lambda c, topic=topic: c.create_topics(  # type: ignore[misc]
                        [topic], topic_ids=[dice.uuid()], start=0
                    )
                )
                assert result.error_code == 0, result
                sys.stdout.write(f"{topic.name}\n")
                sys.stdout.flush()

        await asyncio.gather(*map(client, range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(make_topics(*sys.argv[1:3]))
