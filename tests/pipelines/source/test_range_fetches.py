"""Fetch responses of brokers that keep old records in remote storage."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from ottla.clients.tables import range_reader
from ottla.clients.tables.range_reader import RangeFetches
from ottla.clients.tables.topic_cluster import RecordSizes
from ottla.pipelines.source.options import read_options
from ottla.pipelines.source.planning import TaskRange
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.log_building import batch

END = 1


class SlowStore:
    """A leader that returns no records at first, though it reports the full end offset."""

    settings = SimpleNamespace(retry_backoff_ms=1, retry_backoff_max_ms=1, request_timeout_ms=1)

    def __init__(self, empty_count: int) -> None:
        self._left = empty_count

    async def partition(self, _: object) -> Any:
        await asyncio.sleep(0)
        return SimpleNamespace(leader_id=1, leader_epoch=0)

    async def connection_to(self, _: int) -> Any:
        await asyncio.sleep(0)
        return self

    async def ask(self, *_: Any, **_more: Any) -> FetchResponse:
        await asyncio.sleep(0)
        self._left -= 1
        row = PartitionData(
            partition_index=0,
            high_watermark=END,
            last_stable_offset=END,
            records=b"" if self._left >= 0 else batch(),
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="old", partitions=[row])])


@pytest.mark.parametrize(("is_local", "has_records"), [(False, True), (True, False)])
def test_an_empty_answer_is_the_end_only_where_the_records_would_be_at_hand(
    monkeypatch: pytest.MonkeyPatch, is_local: bool, has_records: bool
) -> None:
    monkeypatch.setattr(range_reader, "are_local", AsyncMock(return_value=is_local))
    settings = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "old"}
    fetching = read_options(settings, is_streaming=True).fetching

    async def run() -> bool:
        view: Any = SlowStore(empty_count=2)
        wanted = TaskRange("old", 0, 0, END)
        fetches = RangeFetches(view, wanted, fetching, RecordSizes(), fail_on_data_loss=True)
        found = await fetches.next()
        assert fetches.is_over
        return found is not None

    assert asyncio.run(run()) is has_records
