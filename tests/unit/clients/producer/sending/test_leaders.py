"""The search for leaders runs until every awaited partition has one, and no longer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import ClientSettings
from ottla.clients.producer.sending.leaders import NO_LEADER, Leaders
from ottla.clients.producer.state.settings import ProducerSettings
from ottla.model.address import Address
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class View(ClusterView):
    """A cluster view: partition 0 has a leader; partition 1 has one from a given response on."""

    def __init__(self, *, led_from: int = 10**9) -> None:
        address = Address("127.0.0.1", 1)
        super().__init__(ClientSettings((address,), retry_backoff_ms=1, retry_backoff_max_ms=1))
        self.led_from = led_from
        self.asked = 0

    async def ask_any(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        leader_ids = [7, 7 if self.asked >= self.led_from else NO_LEADER]
        rows = [
            MetadataResponsePartition(partition_index=index, leader_id=leader_id)
            for index, leader_id in enumerate(leader_ids)
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=7, host="127.0.0.1", port=1)],
            topics=[MetadataResponseTopic(name="t", partitions=rows)],
        )


class Counts:
    """Stands for the accumulator, with the methods that `Leaders` calls."""

    def partition_count(self, _topic: str) -> int:
        return 0

    def set_partition_count(self, topic: str, count: int) -> None:
        pass


def run(
    view: View,
    work: Callable[[Leaders, asyncio.Queue[int]], Awaitable[None]],
    awaited: TopicPartition | None = None,
) -> None:
    """Run `work` with leaders and a queue; each change queues the awaited partition's leader."""

    async def main() -> None:
        news: asyncio.Queue[int] = asyncio.Queue()
        accumulator: Any = Counts()

        def on_news() -> None:
            news.put_nowait(NO_LEADER if awaited is None else leaders.leader_of(awaited))

        leaders = Leaders(view, accumulator, ProducerSettings(), on_news)
        try:
            async with asyncio.timeout(10):
                await work(leaders, news)
        finally:
            leaders.close()

    asyncio.run(main())


def test_news_of_one_partition_are_told_though_another_has_no_leader() -> None:
    async def work(leaders: Leaders, news: asyncio.Queue[int]) -> None:
        assert leaders.leader_of(T0) == NO_LEADER
        await news.get()
        assert (leaders.leader_of(T0), leaders.leader_of(T1)) == (7, NO_LEADER)

    run(View(), work)


def test_a_leader_is_looked_for_while_a_batch_waits() -> None:
    async def work(leaders: Leaders, news: asyncio.Queue[int]) -> None:
        leaders.leader_of(T1)
        assert [await news.get() for _ in range(4)] == [NO_LEADER, NO_LEADER, NO_LEADER, 7]

    run(view := View(led_from=4), work, T1)
    assert view.asked == 4


def test_no_metadata_is_requested_for_a_topic_without_waiting_batches() -> None:
    async def work(leaders: Leaders, news: asyncio.Queue[int]) -> None:
        leaders.leader_of(T1)
        assert leaders._asking is not None
        await leaders._asking

    run(view := View(), work)
    assert view.asked == 1


def test_partitions_that_were_led_are_known_until_the_topic_is_seen_again() -> None:
    view = View()

    async def work(leaders: Leaders, news: asyncio.Queue[int]) -> None:
        assert leaders.led_partitions("t") == []
        leaders.leader_of(T0)
        await news.get()
        view.forget(["t"])
        assert leaders.led_partitions("t") == [0]

    run(view, work)
