"""The steps of a decision: append and replay at once, publish in order once it is committed."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.broker.decision_runtime import DecisionRuntime, Outcome
from ottla.machines.decision import Decision
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from tests.metadata_building import settle

Numbers = list[int]


class HeldLog:
    """A log of numbers that is committed up to where the test says, and its machine's replay."""

    def __init__(self, machine: Numbers) -> None:
        self.machine = machine
        self.committed_offset = 0
        self.error: BaseException | None = None
        self.waits: list[int] = []
        self._change = asyncio.Event()

    @property
    def end_offset(self) -> int:
        return len(self.machine)

    def write(self, records: tuple[int, ...]) -> tuple[int, ...] | None:
        if 0 in records:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, "0 is too large")
        self.machine += records
        return records or None

    def is_committed(self, end_offset: int) -> bool:
        return self.committed_offset >= end_offset

    async def committed(self, end_offset: int) -> None:
        self.waits.append(end_offset)
        while not self.is_committed(end_offset):
            if self.error is not None:
                raise self.error
            self._change.clear()
            await self._change.wait()

    def commit(self, end_offset: int) -> None:
        self.committed_offset = end_offset
        self._change.set()

    def fail(self, error: BaseException | None) -> None:
        self.error = error
        self._change.set()


class Parts:
    """A runtime over a held log, and what it has published."""

    def __init__(self, pause: Callable[[ApiError], Awaitable[bool]] | None = None) -> None:
        self.published: list[tuple[int, ...]] = []
        self.preparing: list[Outcome] = []
        self.is_slow = False
        self.log = HeldLog([])
        self.runtime = DecisionRuntime(self.log.machine, self.log, self._publish, pause)

    def _publish(self, records: tuple[int, ...]) -> Outcome | None:
        self.published.append(records)
        if not self.is_slow:
            return None
        self.preparing.append(asyncio.get_running_loop().create_future())
        return self.preparing[-1]

    async def execute(self, *records: int) -> int:
        end = self.runtime.decide(lambda machine: Decision(records, len(machine) + len(records)))
        await self.runtime.published()
        return end


def tell(story: Callable[[], Awaitable[None]]) -> None:
    async def told() -> None:
        await story()

    asyncio.run(told())


def start(parts: Parts, *records: int) -> "asyncio.Task[int]":
    return asyncio.get_running_loop().create_task(parts.execute(*records))


def test_a_decision_sees_earlier_ones_and_is_answered_once_it_is_committed_and_published() -> None:
    async def story() -> None:
        parts = Parts()
        first, second = start(parts, 1, 2), start(parts, 3)
        await settle()
        assert parts.log.machine == [1, 2, 3]
        assert not parts.published
        parts.log.commit(2)
        await settle()
        assert (parts.published, first.done(), second.done()) == ([(1, 2)], True, False)
        parts.log.commit(3)
        assert (await first, await second) == (2, 3)
        assert parts.published == [(1, 2), (3,)]

    tell(story)


def test_a_decision_that_is_committed_at_once_is_published_at_once() -> None:
    async def story() -> None:
        parts = Parts()
        parts.log.commit(10)
        assert parts.runtime.decide(lambda _: Decision((1,), "done")) == "done"
        assert parts.published == [(1,)]
        await parts.runtime.published()
        assert parts.log.waits == []

    tell(story)


def test_a_decision_without_records_waits_for_the_state_that_it_has_read() -> None:
    async def story() -> None:
        parts = Parts()
        start(parts, 1)
        await settle()
        reading = start(parts)
        await settle()
        assert not reading.done()
        parts.log.commit(1)
        assert await reading == 1

    tell(story)


def test_a_response_waits_for_a_publication_that_takes_long() -> None:
    async def story() -> None:
        parts = Parts()
        parts.is_slow = True
        first, second = start(parts, 1), start(parts, 2)
        await settle()
        parts.log.commit(2)
        await settle()
        assert (parts.published, first.done()) == ([(1,), (2,)], False)
        parts.preparing[0].set_result(None)
        parts.preparing[1].set_result(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "a bug"))
        assert await first == 1
        with pytest.raises(ApiError, match="a bug"):
            await second

    tell(story)


def test_a_decision_that_cannot_be_written_has_not_happened() -> None:
    async def story() -> None:
        parts = Parts()
        with pytest.raises(ApiError, match="too large"):
            await parts.execute(1, 0)
        assert (parts.log.machine, parts.published) == ([], [])

    tell(story)


def test_a_client_that_goes_away_takes_nothing_back() -> None:
    async def story() -> None:
        parts = Parts()
        waiting = start(parts, 1)
        await settle()
        waiting.cancel()
        await settle()
        parts.log.commit(1)
        await settle()
        assert parts.published == [(1,)]

    tell(story)


def test_after_a_failed_wait_the_next_caller_repeats_it_and_all_is_published_in_order() -> None:
    async def story() -> None:
        parts = Parts()
        outcomes = [start(parts, 1), start(parts, 2)]
        await settle()
        parts.log.fail(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full"))
        for outcome in outcomes:
            with pytest.raises(ApiError, match="full"):
                await outcome
        await settle()
        waits = len(parts.log.waits)
        parts.log.fail(None)
        reading = start(parts)
        await settle()
        assert len(parts.log.waits) == waits + 1, "nothing has repeated it before"
        parts.log.commit(2)
        assert await reading == 2
        assert parts.published == [(1,), (2,)]

    tell(story)


def test_with_a_pause_a_failed_wait_is_repeated_until_it_gives_up() -> None:
    async def story() -> None:
        errors: list[ErrorCode] = []

        async def pause(error: ApiError) -> bool:
            errors.append(error.code)
            await asyncio.sleep(0)
            return len(errors) < 3

        parts = Parts(pause)
        parts.log.error = ApiError(ErrorCode.REQUEST_TIMED_OUT, "replicas are late")
        parts.runtime.decide(lambda _: Decision((1,), None))
        await parts.runtime.finish()
        assert errors == [ErrorCode.REQUEST_TIMED_OUT] * 3
        assert not parts.published

    tell(story)


def test_a_bug_in_the_log_ends_the_runtime() -> None:
    async def story() -> None:
        parts = Parts()
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        waiting = start(parts, 1)
        await settle()
        parts.log.fail(ValueError("a bug"))
        for deciding in (waiting, start(parts, 2)):
            with pytest.raises(ApiError, match="a bug"):
                await deciding
        assert (parts.log.machine, parts.published) == ([1], [])

    tell(story)


def test_a_closed_runtime_publishes_nothing() -> None:
    async def story() -> None:
        parts = Parts()
        parts.runtime.decide(lambda _: Decision((1,), None))
        await settle()
        parts.runtime.close()
        parts.log.commit(1)
        await settle()
        assert not parts.published

    tell(story)
