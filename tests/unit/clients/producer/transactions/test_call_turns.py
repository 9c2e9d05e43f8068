"""The lock of a transaction's calls, held by coroutines or briefly by a thread."""

import asyncio
import sys
import threading
from collections.abc import Iterator

import pytest

from ottla.clients.producer.transactions.call_turns import CallTurns

ROUNDS = 500


@pytest.fixture(autouse=True)
def _hasty_threads() -> Iterator[None]:
    """Make threads switch often, so that their steps interleave."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_a_turn_is_lent_only_while_nobody_has_it() -> None:
    async def run() -> list[bool]:
        turns = CallTurns()
        async with turns:
            found = [turns.is_taken(), turns.lend()]
        return [*found, turns.is_taken(), turns.lend(), turns.is_taken()]

    assert asyncio.run(run()) == [True, False, False, True, True]


def test_a_call_waits_until_the_turn_is_given_back() -> None:
    async def run() -> list[str]:
        turns = CallTurns()
        seen: list[str] = []

        async def call() -> None:
            async with turns:
                seen.append("called")

        assert turns.lend()
        task = asyncio.ensure_future(call())
        await asyncio.sleep(0.01)
        seen.append("given back")
        turns.is_lent = False
        await task
        return seen

    assert asyncio.run(run()) == ["given back", "called"]


def test_who_gives_up_waiting_for_a_turn_that_is_lent_leaves_the_line() -> None:
    async def run() -> None:
        turns = CallTurns()
        assert turns.lend()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), turns:
                pytest.fail("it is lent")
        turns.is_lent = False
        async with asyncio.timeout(10), turns:
            assert turns.is_taken()

    asyncio.run(run())


def test_never_two_have_the_turn() -> None:
    inside = 0
    lent = 0

    def work() -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        inside -= 1

    def borrow(turns: CallTurns) -> None:
        nonlocal lent
        for _ in range(ROUNDS):
            if turns.lend():
                lent += 1
                work()
                turns.is_lent = False

    async def run() -> None:
        turns = CallTurns()
        thread = threading.Thread(target=borrow, args=[turns])
        thread.start()
        for _ in range(ROUNDS):
            async with turns:
                work()
            await asyncio.sleep(0)
        await asyncio.to_thread(thread.join)

    asyncio.run(run())
    assert lent
