"""PollNotifier: each notification wakes the waiting task or thread."""

import asyncio
from queue import SimpleQueue
from threading import Thread

from ottla.clients.consumer.core.core import PollNotifier

LONG = 60.0
ROUNDS = 50


def test_a_task_hears_it_and_does_not_wait_beyond_its_deadline() -> None:
    async def story() -> None:
        notifier = PollNotifier()
        loop = asyncio.get_running_loop()
        loop.call_soon(notifier.notify)
        assert await notifier.wait(loop.time() + LONG)
        assert not await notifier.wait(loop.time())

    asyncio.run(story())


def test_a_thread_hears_of_everything_however_close_it_comes() -> None:
    notifier = PollNotifier()
    there: list[int] = []
    seen: SimpleQueue[int] = SimpleQueue()

    def wait_in_thread() -> None:
        for number in range(ROUNDS):
            while len(there) <= number:
                notifier.wait_in_thread(lambda number=number: len(there) > number, None)  # type: ignore[misc]
            seen.put(number)

    thread = Thread(target=wait_in_thread)
    thread.start()
    for number in range(ROUNDS):
        there.append(number)
        notifier.notify()
        assert seen.get(timeout=LONG) == number
    thread.join()


def test_a_thread_does_not_wait_for_what_is_there() -> None:
    asked: list[int] = []
    PollNotifier().wait_in_thread(lambda: not asked.append(1), LONG)  # type: ignore[func-returns-value]
    assert asked == [1]


def test_a_waiting_thread_returns_without_a_notification() -> None:
    PollNotifier().wait_in_thread(lambda: False, 0.0)
