"""Ottla producers write side by side, by every method of the API, each with its own keys."""

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla import Producer, RecordMetadata, aio
from ottla.clients.producer.bulk.bulk_delivery import BulkDelivery
from tests.cluster.load import QUEUE_MAX, ROUND_SECONDS, WAIT_SECONDS_MAX, Place, Writing

KEYS_PER_PARTITION = 4
"""One set of keys per way to write."""
Answered = Callable[[BaseException | None, RecordMetadata | None], None]


class OurLoad(Writing):
    """Threads with one `ottla.Producer` each: single sends, awaited sends, bulk, and asyncio.

    An exception from a call is a failure, and so is a call that never returns.
    """

    def _prepare(self) -> None:
        assert self.keys_per_partition == KEYS_PER_PARTITION
        ways = (self._write, self._write_each, self._write_many, self._write_in_loop)
        count = self.partitions
        self._threads = [
            threading.Thread(target=self._run, args=(way, keys), daemon=True)
            for number, way in enumerate(ways)
            for keys in [self._keys[number * count : (number + 1) * count]]
        ]
        self._numbers.update(dict.fromkeys(self._keys, 0))  # each is one thread's

    def _start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _end(self, *, is_whole: bool) -> None:
        for thread in self._threads:
            thread.join(3 * WAIT_SECONDS_MAX if is_whole else 1)
            assert not (thread.is_alive() and is_whole), "a producer does not end"
        left = self._unanswered() - len(self.failed)
        assert not (left and is_whole), f"{left} records were never answered"

    def _run(self, write: Callable[[list[int]], None], keys: list[int]) -> None:
        try:
            write(keys)
        except BaseException as error:  # noqa: BLE001 - the story ends with it
            self.failed.append(repr(error))

    def _settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers,
            "linger.ms": 5,
            "request.timeout.ms": self.request_timeout_ms,
        }

    def _write(self, keys: list[int]) -> None:
        with Producer(self._settings()) as producer:
            while not self._stopping.wait(ROUND_SECONDS):
                for key, number in self._more(keys):
                    producer.send(*self._record(key, number), **self._more_of(key, number))
            producer.flush(WAIT_SECONDS_MAX)

    def _write_each(self, keys: list[int]) -> None:
        """Send records one by one, awaiting each, which takes the express path."""
        with Producer(self._settings() | {"linger.ms": 0}) as producer:
            while not self._stopping.wait(ROUND_SECONDS):
                for key, number in self._more(keys):
                    sending = producer.send(
                        *self._record(key, number), **self._more_of(key, number)
                    )
                    sending.result(2 * WAIT_SECONDS_MAX)

    def _write_many(self, keys: list[int]) -> None:
        with Producer(self._settings()) as producer:
            while not self._stopping.wait(ROUND_SECONDS):
                rows = self._more(keys)
                sending = producer.send_many(self.topic, [self._row(*row) for row in rows])
                sending.add_done_callback(partial(self._answered_many, rows, time.monotonic()))
            producer.flush(WAIT_SECONDS_MAX)

    def _row(self, key: int, number: int) -> dict[str, Any]:
        partition = key % self.partitions
        return {"key": b"%d" % key, "value": b"%d" % number, "partition": partition}

    def _answered_many(
        self, rows: list[tuple[int, int]], sent_at: float, sent: BulkDelivery
    ) -> None:
        error = sent.exception()
        if error is not None:
            self.failed.append(repr(error))
            return
        for partition, offsets in sent.result().offsets.items():
            own = [row for row in rows if row[0] % self.partitions == partition]
            there = range(offsets.first_offset, offsets.last_offset + 1)  # they were one batch
            for row, offset in zip(own, there, strict=True):
                self.answer(*row, Place(partition, offset), sent_at)

    def _write_in_loop(self, keys: list[int]) -> None:
        asyncio.run(self._write_awaiting(keys))

    async def _write_awaiting(self, keys: list[int]) -> None:
        async with aio.Producer(self._settings()) as producer:
            while not self._stopping.is_set():
                await asyncio.sleep(ROUND_SECONDS)
                for key, number in self._more(keys):
                    await producer.send(*self._record(key, number), **self._more_of(key, number))
            await producer.flush(WAIT_SECONDS_MAX)

    def _more(self, keys: list[int]) -> list[tuple[int, int]]:
        return list(self.next_round(keys)) if self._unanswered() < QUEUE_MAX else []

    def _unanswered(self) -> int:
        return sum(self._numbers.values()) - len(self.acknowledged)

    def _record(self, key: int, number: int) -> tuple[str, bytes, bytes]:
        return self.topic, b"%d" % number, b"%d" % key

    def _more_of(self, key: int, number: int) -> dict[str, Any]:
        return {"partition": key % self.partitions, "on_delivery": self._answered(key, number)}

    def _answered(self, key: int, number: int) -> Answered:
        sent_at = time.monotonic()

        def answered(error: BaseException | None, found: RecordMetadata | None) -> None:
            if found is None:
                self.failed.append(repr(error))
            else:
                self.answer(key, number, Place(found.partition, found.offset), sent_at)

        return answered
