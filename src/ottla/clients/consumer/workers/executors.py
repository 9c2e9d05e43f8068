"""Threads or tasks that call the handler. Both report the outcome to the event loop."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from enum import Enum
from inspect import isawaitable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple, Protocol

from ottla.clients.consumer.workers.lane_scheduler import Work
from ottla.clients.consumer.workers.settings import Handler
from ottla.clients.records.serializers import Deserialize, MissingSchemaError, complete
from ottla.clients.threads.loop_thread import create_background_task
from ottla.wire.records.consumer_record import ConsumerRecord

Readers = tuple[Deserialize | None, Deserialize | None]


class Stage(Enum):
    """The stage of a failure, with Kafka Connect's names."""

    KEY = "KEY_CONVERTER"
    VALUE = "VALUE_CONVERTER"
    HANDLER = "TASK_PUT"


class Failure(NamedTuple):
    """The error of a record, and its stage."""

    error: BaseException
    stage: Stage


OnEnded = Callable[[Work, Failure | None], None]


class HandlerExecutor(Protocol):
    """The workers. All calls and callbacks are on the event loop's thread."""

    def begin(self, work: Work) -> None:
        """Start the handler with this record."""
        ...

    async def end(self, stuck: Collection[Work]) -> None:
        """End all workers; workers that are stuck on these records are abandoned."""
        ...


MakeExecutor = Callable[[OnEnded, Readers], HandlerExecutor]


class UndecodableError(Exception):
    """The deserializer does not accept a key or value; `__cause__` is the reason."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.value)
        self.stage = stage


def decoded(record: ConsumerRecord, readers: Readers) -> ConsumerRecord:
    """Return the record with key and value deserialized; UndecodableError if that fails."""
    read_key, read_value = readers
    if read_key is not None:
        record = record._replace(key=_read(record, record.key, read_key, Stage.KEY))
    if read_value is not None:
        record = record._replace(value=_read(record, record.value, read_value, Stage.VALUE))
    return record


def _read(record: ConsumerRecord, raw: bytes | None, read: Deserialize, stage: Stage) -> Any:
    if raw is None:
        return None
    try:
        return read(record.topic, raw, record.headers)
    except MissingSchemaError:
        raise
    except Exception as error:
        raise UndecodableError(stage) from error


def _decoded_in_thread(record: ConsumerRecord, readers: Readers) -> ConsumerRecord:
    """Decode, and wait for schemas in this thread."""
    while True:
        try:
            return decoded(record, readers)
        except MissingSchemaError as missing:
            try:
                complete(missing.fetch())
            except Exception as error:
                raise UndecodableError(_stage_of(missing)) from error


def _stage_of(missing: MissingSchemaError) -> Stage:
    return Stage.KEY if missing.part == "key" else Stage.VALUE


async def _decoded_in_task(record: ConsumerRecord, readers: Readers) -> ConsumerRecord:
    """Decode, and await schemas."""
    while True:
        try:
            return decoded(record, readers)
        except MissingSchemaError as missing:
            try:
                await missing.fetch()
            except Exception as error:
                raise UndecodableError(_stage_of(missing)) from error


def failure_of(error: BaseException) -> Failure:
    """Return the failure with its stage."""
    if isinstance(error, UndecodableError) and error.__cause__ is not None:
        return Failure(error.__cause__, error.stage)
    return Failure(error, Stage.HANDLER)


class ThreadExecutor:
    """Threads that call a plain function. They end with the interpreter at the latest.

    They receive records through a queue. Results go to a list that the loop takes as a whole, under
    a lock; whenever the list is not empty, the loop is scheduled to take it.
    """

    def __init__(
        self, count: int, handler: Handler, on_ended: OnEnded, readers: Readers, name: str
    ) -> None:
        self._handler = handler
        self._on_ended = on_ended
        self._readers = readers
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._lock = Lock()
        self._ended: list[tuple[Work, Failure | None]] = []
        self._threads = [
            Thread(target=self._serve, name=f"{name} worker {number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def begin(self, work: Work) -> None:
        """Start the handler with this record."""
        self._queue.put(work)

    async def end(self, stuck: Collection[Work]) -> None:  # noqa: ARG002 - see HandlerExecutor
        """End all threads that are not stuck; a stuck thread ends after its call."""
        for _ in self._threads:
            self._queue.put(None)

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            failure = None
            try:
                self._handler(_decoded_in_thread(work.record, self._readers))
            except BaseException as error:  # noqa: BLE001 - told where records are counted
                failure = failure_of(error)
            with self._lock:
                self._ended.append((work, failure))
                is_first = len(self._ended) == 1
            if is_first:
                with suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        for work, failure in ended:
            self._on_ended(work, failure)


class TaskExecutor:
    """A task for each record, for handlers that are coroutine functions."""

    def __init__(self, handler: Handler, on_ended: OnEnded, readers: Readers) -> None:
        self._handler = handler
        self._on_ended = on_ended
        self._readers = readers
        self._task_by_work: dict[Work, asyncio.Task[None]] = {}

    def begin(self, work: Work) -> None:
        """Start the handler with this record."""
        self._task_by_work[work] = create_background_task(self._call(work))

    async def end(self, stuck: Collection[Work]) -> None:
        """Cancel the remaining tasks, and wait briefly for them to end."""
        tasks = [self._task_by_work[work] for work in stuck if work in self._task_by_work]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)

    async def _call(self, work: Work) -> None:
        failure = None
        try:
            returned = self._handler(await _decoded_in_task(work.record, self._readers))
            if isawaitable(returned):
                await returned
        except BaseException as error:  # noqa: BLE001 - told where records are counted
            failure = failure_of(error)
        del self._task_by_work[work]
        self._on_ended(work, failure)
