"""FIFO locks per key; a lock without a holder or waiters leaves no state."""

import asyncio

from ottla.concurrency.keyed_lock import KeyedLock


async def pass_by(locks: KeyedLock, name: str, number: int, steps: int, seen: list[str]) -> None:
    async with locks.hold(name):
        seen.append(f"{name}{number} in")
        for _ in range(steps):
            await asyncio.sleep(0)
        seen.append(f"{name}{number} out")


def test_later_callers_wait_for_earlier_callers() -> None:
    async def story() -> list[str]:
        locks, seen = KeyedLock(), list[str]()
        await asyncio.gather(
            *(pass_by(locks, "a", number, 5 - number, seen) for number in range(4))
        )
        assert not locks._last_by_name
        return seen

    expected = [f"a{number} {way}" for number in range(4) for way in ("in", "out")]
    assert asyncio.run(story()) == expected


def test_other_names_do_not_wait() -> None:
    async def story() -> list[str]:
        locks, seen = KeyedLock(), list[str]()
        await asyncio.gather(pass_by(locks, "a", 0, 3, seen), pass_by(locks, "b", 0, 0, seen))
        return seen

    assert asyncio.run(story()) == ["a0 in", "b0 in", "b0 out", "a0 out"]


def test_a_cancelled_waiter_does_not_change_the_order() -> None:
    async def story() -> list[str]:
        locks, seen = KeyedLock(), list[str]()
        tasks = [asyncio.create_task(pass_by(locks, "a", number, 3, seen)) for number in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.wait(tasks)
        assert not locks._last_by_name
        return seen

    assert asyncio.run(story()) == ["a0 in", "a0 out", "a2 in", "a2 out"]


def test_a_waiter_for_several_locks_keeps_its_place_in_each() -> None:
    async def story() -> list[str]:
        locks, seen = KeyedLock(), list[str]()

        async def pass_both() -> None:
            async with locks.hold("a", "b"):
                seen.append("both in")
                await asyncio.sleep(0)
                seen.append("both out")

        await asyncio.gather(
            pass_by(locks, "a", 0, 3, seen),
            pass_both(),
            pass_by(locks, "b", 1, 0, seen),
            pass_by(locks, "c", 0, 0, seen),
        )
        assert not locks._last_by_name
        return seen

    assert asyncio.run(story()) == [
        *("a0 in", "c0 in", "c0 out", "a0 out"),
        *("both in", "both out", "b1 in", "b1 out"),
    ]


def test_locks_tell_whether_they_are_held() -> None:
    async def story() -> None:
        locks = KeyedLock()
        async with locks.hold("a", "b"):
            assert locks.is_held(["c", "b"])
            assert not locks.is_held(["c"])
        assert not locks.is_held(["a", "b"])

    asyncio.run(story())
