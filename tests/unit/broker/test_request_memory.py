"""Memory for requests: counted, and those who wait for it are woken once."""

from ottla.broker.request_memory import RequestMemory


def test_it_is_full_when_all_of_it_is_taken() -> None:
    memory = RequestMemory(10)
    memory.take(9)
    assert not memory.is_full
    memory.take(5)
    assert memory.is_full
    memory.give_back(5)
    assert not memory.is_full


def test_those_who_wait_are_woken_in_order_when_there_is_room() -> None:
    memory = RequestMemory(10)
    woken: list[str] = []

    def wake(name: str) -> None:
        woken.append(name)

    memory.take(20)
    for name in ("first", "second"):
        memory.wait(lambda name=name: wake(name))  # type: ignore[misc]
    memory.give_back(5)
    assert woken == []
    memory.give_back(6)
    assert woken == ["first", "second"]
    memory.give_back(1)
    assert woken == ["first", "second"]


def test_who_is_woken_may_wait_again() -> None:
    memory = RequestMemory(10)
    woken: list[int] = []

    def take_all_again() -> None:
        woken.append(memory.used_bytes)
        memory.take(10)
        memory.wait(take_all_again)

    memory.take(10)
    memory.wait(take_all_again)
    memory.give_back(10)
    memory.give_back(3)
    assert woken == [0, 7]


def test_who_has_gone_is_not_woken() -> None:
    memory = RequestMemory(10)
    woken: list[int] = []

    def wake() -> None:
        woken.append(1)

    memory.take(10)
    memory.wait(wake)
    memory.forget(wake)
    memory.forget(wake)
    memory.give_back(10)
    assert woken == []


def test_one_at_a_time_is_favoured() -> None:
    memory = RequestMemory(10)
    woken: list[str] = []

    def first() -> None:
        woken.append("first")

    def second() -> None:
        woken.append("second")

    memory.take(10)
    assert memory.favours(first)
    assert not memory.favours(second)
    memory.wait(second)
    assert memory.favours(first)
    memory.forget(first)
    assert woken == ["second"]
    assert memory.favours(second)
    memory.forget(second)
    assert woken == ["second"]
