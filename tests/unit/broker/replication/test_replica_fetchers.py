"""Partitions are added to a fetcher and removed while it waits for a response."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.hosting.log_flusher import LogFlusher
from ottla.broker.replication import replica_fetcher
from ottla.broker.replication.fetcher_world import FetcherSettings, FetcherWorld
from ottla.broker.replication.replica_fetchers import ReplicaFetchers
from ottla.broker.replication.replication_quotas import Throttles
from ottla.concurrency.notifier import Notifier
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.broker_config import BrokerConfig
from ottla.replication.partition import Partition
from ottla.runtime.clock import SystemClock
from ottla.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.log_building import batch, new_log, stamped
from tests.metadata_building import InlineExecutor

LEADER, OTHER_LEADER = 1, 2
FETCHES = 5
SETTINGS = FetcherSettings(
    wait_ms=500,
    bytes_min=1,
    partition_bytes_max=1 << 20,
    bytes_max=1 << 20,
    backoff_ms=20,
    timeout_ms=1_000,
)


class Leader:
    """A leader for which the fetch offset of the first partition is out of range."""

    is_open = True

    def __init__(
        self,
        behind: Partition,
        meanwhile: Callable[[], None] = lambda: None,
        *,
        start_offset: int = 50,
    ) -> None:
        self.fetch_count = 0
        self.goes_on = asyncio.Event()
        self._behind = behind
        self._meanwhile = meanwhile
        self._start_offset = start_offset

    async def has_been_asked(self) -> None:
        """Wait until the fetcher has sent several requests."""
        async with asyncio.timeout(5):
            await self.goes_on.wait()

    def close(self) -> None:
        """Accept no more requests."""

    async def ask(self, request: Any, *_: Any, **_more: Any) -> Any:
        await asyncio.sleep(0)
        if isinstance(request, FetchRequest):
            self.fetch_count += 1
            if self.fetch_count == FETCHES:
                self.goes_on.set()
            return self._fetched() if self.fetch_count == 1 else FetchResponse(session_id=7)
        self._meanwhile()
        start = ListOffsetsPartitionResponse(partition_index=0, offset=self._start_offset)
        topic = ListOffsetsTopicResponse(name=self._behind.name.topic, partitions=[start])
        return ListOffsetsResponse(topics=[topic])

    def _fetched(self) -> FetchResponse:
        refused = PartitionData(
            partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=-1
        )
        topic = FetchableTopicResponse(topic_id=self._behind.topic_id, partitions=[refused])
        return FetchResponse(session_id=7, responses=[topic])


def fetchers_of(
    leader: Leader, notifier: Notifier, monkeypatch: pytest.MonkeyPatch
) -> ReplicaFetchers:
    """Return fetchers that know only this leader."""

    async def connect(*_: Any, **_more: Any) -> Any:
        await asyncio.sleep(0)
        return leader

    monkeypatch.setattr(replica_fetcher, "connect_to_broker", connect)
    clock = SystemClock()
    address = SimpleNamespace(host="127.0.0.1", port=1)
    nowhere: Any = None
    return ReplicaFetchers(
        FetcherWorld(
            0,
            lambda: 1,
            lambda broker_id: address if broker_id == LEADER else None,  # type: ignore[arg-type,return-value]
            nowhere,
            clock,
            notifier,
            LogFlusher(InlineExecutor(), clock),
            Throttles(BrokerConfig(), clock).follower,
            SETTINGS,
        )
    )


@pytest.mark.parametrize("is_deleted", [False, True], ids=["it has another leader", "it is gone"])
def test_one_that_leaves_while_its_beginning_is_asked_for_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    async def run() -> None:
        notifier = Notifier(SystemClock())
        leaving, staying = (
            Partition(TopicPartition(name, 0), name.encode() * 16, new_log(), notifier.notify)
            for name in "ab"
        )

        def leave() -> None:
            if is_deleted:
                fetchers.forget(leaving)
            else:
                leaving.follow(OTHER_LEADER, 1)
                fetchers.follow(leaving)

        leader = Leader(leaving, leave)
        fetchers = fetchers_of(leader, notifier, monkeypatch)
        for partition in (leaving, staying):
            partition.follow(LEADER, 0)
            fetchers.follow(partition)
        fetchers.start()
        await leader.has_been_asked()
        await fetchers.stop()
        assert leaving.log.end_offset == 0

    asyncio.run(run())


@pytest.mark.parametrize("is_empty", [True, False], ids=["it has nothing", "it has records"])
def test_one_that_is_beyond_its_leader_begins_anew_if_it_has_nothing_to_lose(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_empty: bool
) -> None:
    async def run() -> None:
        notifier = Notifier(SystemClock())
        follower = Partition(TopicPartition("a", 0), b"a" * 16, new_log(), notifier.notify)
        follower.follow(LEADER, 0)
        follower.restart_at(50, 0)
        if not is_empty:
            follower.append_as_follower(stamped(batch(), 50), 0)
        leader = Leader(follower, start_offset=3)
        fetchers = fetchers_of(leader, notifier, monkeypatch)
        fetchers.follow(follower)
        fetchers.start()
        await leader.has_been_asked()
        await fetchers.stop()
        end_offset, high_watermark = (3, 3) if is_empty else (51, 50)
        assert follower.log.end_offset == end_offset
        assert follower.high_watermark == high_watermark

    asyncio.run(run())
    assert ("an unclean election has lost committed records" in caplog.text) == is_empty
