"""Who waits is told: a task, or a thread, whenever it is rung."""

import asyncio
from queue import SimpleQueue
from threading import Thread

from ottla.clients.consumer.core.poll_notifier import Bell

LONG = 60.0
ROUNDS = 50


def test_a_task_hears_it_and_does_not_wait_beyond_its_deadline() -> None:
    async def story() -> None:
        bell = Bell()
        loop = asyncio.get_running_loop()
        loop.call_soon(bell.ring)
        assert await bell.heard(loop.time() + LONG)
        assert not await bell.heard(loop.time())

    asyncio.run(story())


def test_a_thread_hears_of_everything_however_close_it_comes() -> None:
    bell = Bell()
    there: list[int] = []
    seen: SimpleQueue[int] = SimpleQueue()

    def listen() -> None:
        for number in range(ROUNDS):
            while len(there) <= number:
                bell.listen(lambda number=number: len(there) > number, None)  # type: ignore[misc]
            seen.put(number)

    thread = Thread(target=listen)
    thread.start()
    for number in range(ROUNDS):
        there.append(number)
        bell.ring()
        assert seen.get(timeout=LONG) == number
    thread.join()


def test_a_thread_does_not_wait_for_what_is_there() -> None:
    asked: list[int] = []
    Bell().listen(lambda: not asked.append(1), LONG)  # type: ignore[func-returns-value]
    assert asked == [1]


def test_a_thread_comes_back_though_nobody_rings() -> None:
    Bell().listen(lambda: False, 0.0)
