"""Batches under validation on threads whose connections break."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any

from ottla.broker.data.batch_validation import LOOP_BYTES_MAX, THREADS_MAX, BatchValidation
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.topic_config import TopicConfig
from ottla.storage.log.admission import Validated
from tests.log_building import NOW_MS, batch

LARGE = batch(value=bytes(LOOP_BYTES_MAX))
CONFIG = TopicConfig(max_message_bytes=2 * LOOP_BYTES_MAX)


class HeldThreads(ThreadPoolExecutor):
    """Threads that begin their work when the test lets them."""

    def __init__(self) -> None:
        super().__init__(max_workers=2 * THREADS_MAX)
        self.submitted = 0
        self.may_run = Event()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.submitted += 1

        def held() -> Any:
            self.may_run.wait()
            return fn(*args, **kwargs)

        return super().submit(held)

    def __exit__(self, *raised: Any) -> None:
        self.may_run.set()
        super().__exit__(*raised)


def test_cancelled_requests_keep_their_threads_until_these_are_done() -> None:
    asyncio.run(_cancelled_requests_keep_their_threads())


async def _cancelled_requests_keep_their_threads() -> None:
    with HeldThreads() as threads:
        validation = BatchValidation(threads)

        async def produced(partition: int) -> Any:
            names = [TopicPartition("orders", partition)]
            return await validation.batches([LARGE], names, [CONFIG], NOW_MS)

        cut = [asyncio.create_task(produced(index)) for index in range(THREADS_MAX)]
        await asyncio.sleep(0)
        for one in cut:
            one.cancel()
        await asyncio.wait(cut)
        later = [asyncio.create_task(produced(THREADS_MAX + index)) for index in range(THREADS_MAX)]
        await asyncio.sleep(0)
        assert threads.submitted == THREADS_MAX

        threads.may_run.set()
        for (validated,) in await asyncio.gather(*later):
            assert isinstance(validated, Validated)
        assert threads.submitted == 2 * THREADS_MAX
