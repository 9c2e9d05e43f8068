"""A consumer that works in its own thread, with either facade, and a record of its actions."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock, Thread
from typing import Any

from ottla import Consumer, ConsumerRecord, Producer, TopicPartition, aio
from tests.clients.consumer_stories import SECONDS_MAX, wait_until

FACES = ["threads", "tasks"]
CONSUMER: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 100,
    "auto_commit_interval_ms": 100,
}


def no_time(_record: ConsumerRecord) -> float:
    return 0.0


def never(_record: ConsumerRecord) -> bool:
    return False


def nothing(_record: ConsumerRecord) -> None:
    """All went well."""


class Book:
    """Records which worker handled which record, and when; may be shared by several workshops."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.begun: list[ConsumerRecord] = []
        self.done: list[ConsumerRecord] = []
        self.lane_of: Callable[[ConsumerRecord], object] = lambda record: record[:3]
        self._at: defaultdict[object, int] = defaultdict(int)
        self.together_max = 0
        self.clashes: list[ConsumerRecord] = []

    def begin(self, record: ConsumerRecord) -> None:
        with self._lock:
            self.begun.append(record)
            lane = self.lane_of(record)
            if self._at[lane]:
                self.clashes.append(record)
            self._at[lane] += 1
            self.together_max = max(self.together_max, sum(self._at.values()))

    def end(self, record: ConsumerRecord, *, is_done: bool) -> None:
        with self._lock:
            self._at[self.lane_of(record)] -= 1
            if is_done:
                self.done.append(record)

    def offsets_by_lane(self) -> dict[object, list[int]]:
        found = defaultdict(list)
        for record in self.begun:
            found[self.lane_of(record)].append(record.offset)
        return found


class Workshop:
    """Runs a handler over a topic until it is stopped.

    The handler takes its time first, and then waits for as long as the record is held.
    """

    def __init__(
        self,
        face: str,
        servers: str,
        topic: str,
        book: Book,
        handle: Callable[[ConsumerRecord], None] = nothing,
        *,
        duration: Callable[[ConsumerRecord], float] = no_time,
        held: Callable[[ConsumerRecord], bool] = never,
        settings: dict[str, Any] | None = None,
        listeners: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        told = {"bootstrap_servers": servers, "group_id": topic, **CONSUMER, **(settings or {})}
        self._topic = topic
        self._book = book
        self._handle = handle
        self._duration = duration
        self._held = held
        self._listeners = listeners or {}
        self._options = options
        self.error: Exception | None = None
        self.consumer: Any = (Consumer if face == "threads" else aio.Consumer)(told)
        work = self._work if face == "threads" else lambda: asyncio.run(self._work_in_tasks())
        self._thread = Thread(target=work, daemon=True)
        self._thread.start()

    def stop(self) -> Exception | None:
        """Stop, and return the exception of `run`, if any."""
        self.consumer.stop()
        return self.wait()

    def wait(self) -> Exception | None:
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive(), "it has not ended"
        return self.error

    def metric(self, name: str) -> float:
        found: float = self.consumer.metrics().get(name, 0)
        return found

    def _work(self) -> None:
        with self.consumer:
            self.consumer.subscribe([self._topic], **self._listeners)
            try:
                self.consumer.run(self._call, **self._options)
            except Exception as error:  # noqa: BLE001 - checked by the story
                self.error = error

    async def _work_in_tasks(self) -> None:
        async with self.consumer:
            await self.consumer.subscribe([self._topic], **self._listeners)
            try:
                await self.consumer.run(self._call_in_task, **self._options)
            except Exception as error:  # noqa: BLE001 - checked by the story
                self.error = error

    def _call(self, record: ConsumerRecord) -> None:
        with self._written_down(record):
            time.sleep(self._duration(record))
            while self._held(record):
                time.sleep(0.005)
            self._handle(record)

    async def _call_in_task(self, record: ConsumerRecord) -> None:
        with self._written_down(record):
            await asyncio.sleep(self._duration(record))
            while self._held(record):  # noqa: ASYNC110 - other threads decide
                await asyncio.sleep(0.005)
            self._handle(record)

    @contextmanager
    def _written_down(self, record: ConsumerRecord) -> Iterator[None]:
        self._book.begin(record)
        is_done = False
        try:
            yield
            is_done = True
        finally:
            self._book.end(record, is_done=is_done)


@contextmanager
def workshops() -> Iterator[Callable[..., Workshop]]:
    """Make workshops, and stop the workshops that a failed test has left running."""
    with ExitStack() as stack:

        def make(*arguments: Any, **options: Any) -> Workshop:
            workshop = Workshop(*arguments, **options)
            stack.callback(workshop.stop)
            return workshop

        yield make


def write(servers: str, topic: str, keys: Iterable[str | None], *, partition: Any = None) -> int:
    """Write numbered letters with these keys, and return how many."""
    with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        count = 0
        for count, key in enumerate(keys, 1):
            producer.send(topic, f"letter {count}", key, partition=partition)
        return count


def committed(servers: str, topic: str, partitions: int = 1) -> list[int]:
    """Return the committed offsets of the group of the same name; 0 where there is none."""
    names = [TopicPartition(topic, number) for number in range(partitions)]
    with Consumer(bootstrap_servers=servers, group_id=topic) as consumer:
        found = consumer.committed(names)
    return [found[name].offset if name in found else 0 for name in names]


def ends(servers: str, topic: str, partitions: int = 1) -> list[int]:
    names = [TopicPartition(topic, number) for number in range(partitions)]
    with Consumer(bootstrap_servers=servers) as consumer:
        return [*consumer.end_offsets(names).values()]


def wait_for(book: Book, count: int) -> None:
    wait_until(lambda: len(book.done) >= count, f"{count} records should be done")
