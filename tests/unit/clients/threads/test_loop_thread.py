"""An event loop in its own thread, used by other threads that wait for its results."""

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest

from ottla.clients.errors import ClientClosedError, ForkedClientError
from ottla.clients.threads.loop_thread import LoopThread, call_in_caller, create_background_task

WAIT_SECONDS = 60


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    running = LoopThread("test")
    yield running
    running.close()


async def forever(entered: threading.Event) -> None:
    entered.set()
    await asyncio.get_running_loop().create_future()


async def value_of(number: int) -> int:
    await asyncio.sleep(0)
    return number


def test_it_is_a_loop_whose_epoll_is_known_also_where_uvloop_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = ModuleType("uvloop")
    vars(package)["new_event_loop"] = None
    monkeypatch.setitem(sys.modules, "uvloop", package)
    running = LoopThread("test")
    assert isinstance(running.loop, asyncio.SelectorEventLoop)
    assert running.epoll >= 0
    running.close()


def in_fresh_process(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", program],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )


def test_a_result_and_an_error_come_back_to_the_caller(thread: LoopThread) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("lost")

    assert thread.run(value_of(7)) == 7
    with pytest.raises(KeyError, match="lost"):
        thread.run(fail())


def test_callers_in_many_threads_get_each_their_own_result(thread: LoopThread) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: thread.run(value_of(number)), range(500)))
    assert found == list(range(500))


def test_a_listener_runs_in_the_callers_thread_and_may_use_the_client(thread: LoopThread) -> None:
    def listener(number: int) -> tuple[int, int]:
        return threading.get_ident(), thread.run(value_of(number))

    async def work() -> tuple[int, int]:
        return await call_in_caller(listener, 3)

    assert thread.run(work()) == (threading.get_ident(), 3)


def test_an_error_in_a_listener_is_raised_where_it_was_asked_for(thread: LoopThread) -> None:
    def listener() -> None:
        raise ValueError("not today")

    async def work() -> str:
        try:
            await call_in_caller(listener)
        except ValueError as error:
            return str(error)
        return "nothing"

    assert thread.run(work()) == "not today"


def test_without_a_waiting_thread_a_listener_is_called_on_the_spot() -> None:
    async def work() -> list[int]:
        return [await call_in_caller(value_of, 1), await call_in_caller(lambda: 2)]

    assert asyncio.run(work()) == [1, 2]


def test_a_background_task_does_not_inherit_its_caller(thread: LoopThread) -> None:
    async def behind() -> int:
        return await call_in_caller(threading.get_ident)

    async def work() -> int:
        return await create_background_task(behind())

    assert thread.run(work()) != threading.get_ident()


def test_a_task_that_inherited_a_finished_caller_does_not_hang(thread: LoopThread) -> None:
    tasks: list[asyncio.Task[int]] = []
    go = threading.Event()

    async def behind() -> int:
        await asyncio.to_thread(go.wait, WAIT_SECONDS)
        return await call_in_caller(threading.get_ident)

    async def work() -> None:
        tasks.append(asyncio.create_task(behind()))
        await asyncio.sleep(0)

    async def outcome() -> int:
        return await tasks[0]

    thread.run(work())
    go.set()
    assert thread.run(outcome()) != threading.get_ident()


def test_a_call_without_a_waiting_caller_is_cancelled(thread: LoopThread) -> None:
    tasks: list[asyncio.Task[None]] = []

    async def work() -> None:
        tasks.append(asyncio.create_task(call_in_caller(print)))
        await asyncio.sleep(0)  # the call is queued, and this coroutine ends without waiting for it

    async def outcome() -> bool:
        await asyncio.wait(tasks)
        return tasks[0].done()

    thread.run(work())
    assert thread.run(outcome())


def test_ctrl_c_ends_the_waiting_and_cancels_what_was_waited_for(thread: LoopThread) -> None:
    entered, cancelled = threading.Event(), threading.Event()

    async def work() -> None:
        try:
            await forever(entered)
        finally:
            cancelled.set()

    def interrupt() -> None:
        entered.wait(WAIT_SECONDS)
        is_seen = False
        while not is_seen:  # CPython misses a signal that comes just before the thread sleeps
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            is_seen = cancelled.wait(1)

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        thread.run(work())
    helper.join()
    assert cancelled.wait(WAIT_SECONDS)
    assert thread.run(value_of(1)) == 1


def test_ctrl_c_right_after_the_start_cancels_what_has_begun(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, interrupted, cancelled = (threading.Event() for _ in range(3))
    enter = thread._server.enter

    async def work() -> None:
        entered.set()
        assert interrupted.wait(WAIT_SECONDS)
        try:
            await forever(entered)
        finally:
            cancelled.set()

    def enter_and_be_interrupted(caller: Any) -> None:
        enter(caller)
        assert entered.wait(WAIT_SECONDS)
        raise KeyboardInterrupt

    with monkeypatch.context() as patching:
        patching.setattr(thread._server, "enter", enter_and_be_interrupted)
        with pytest.raises(KeyboardInterrupt):
            thread.run(work())
    interrupted.set()
    assert cancelled.wait(WAIT_SECONDS)
    assert thread.run(value_of(1)) == 1


def test_ctrl_c_in_a_listener_is_the_callers_alone(thread: LoopThread) -> None:
    cancelled = threading.Event()

    def listener() -> None:
        raise KeyboardInterrupt

    async def work() -> None:
        try:
            await call_in_caller(listener)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        thread.run(work())
    assert cancelled.wait(WAIT_SECONDS)
    assert thread.run(value_of(1)) == 1


def test_a_close_ends_the_waiting_of_others_with_a_clear_error() -> None:
    thread = LoopThread("test")
    events = [threading.Event() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(lambda one=one: thread.run(forever(one))) for one in events]
        for one in events:
            assert one.wait(WAIT_SECONDS)
        thread.close()
        for future in waiting:
            with pytest.raises(ClientClosedError, match="while this call waited"):
                future.result(WAIT_SECONDS)


def test_callers_that_come_while_it_closes_never_hang() -> None:
    def call_until_closed(thread: LoopThread) -> bool:
        try:
            while True:
                thread.run(value_of(1))
        except ClientClosedError:
            return True

    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            thread = LoopThread("test")
            calling = [pool.submit(call_until_closed, thread) for _ in range(4)]
            thread.run(value_of(1))
            thread.close()
            assert all(future.result(WAIT_SECONDS) for future in calling)


def test_a_listener_may_close_the_client_it_is_called_by() -> None:
    thread = LoopThread("test")

    async def work() -> None:
        await call_in_caller(thread.close)

    with pytest.raises(ClientClosedError):
        thread.run(work())


def test_what_is_closed_says_so_and_can_be_closed_again() -> None:
    thread = LoopThread("test")
    thread.close()
    thread.close()
    with pytest.raises(ClientClosedError, match="is closed"):
        thread.run(value_of(1))
    with pytest.raises(ClientClosedError, match="is closed"):
        thread.post(print)


def test_a_posted_function_is_called_over_there(thread: LoopThread) -> None:
    called = threading.Event()
    places: list[bool] = []

    def note(event: threading.Event) -> None:
        places.append(thread.is_current)
        event.set()

    thread.post(note, called)
    assert called.wait(WAIT_SECONDS)
    assert places == [True]
    assert not thread.is_current


def test_the_clients_own_thread_is_told_that_it_cannot_wait_for_itself(thread: LoopThread) -> None:
    said: list[str] = []
    called = threading.Event()

    def callback() -> None:
        try:
            thread.run(value_of(1))
        except RuntimeError as error:
            said.append(str(error))
        called.set()

    thread.post(callback)
    assert called.wait(WAIT_SECONDS)
    assert "own thread" in said[0]


def test_a_callback_that_exits_does_not_end_the_client(
    thread: LoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        thread.post(sys.exit, 3)
        assert thread.run(value_of(1)) == 1
    assert "tried to end" in caplog.text


def test_an_unreferenced_client_ends_its_thread() -> None:
    thread = LoopThread("forsaken")
    (served,) = [row for row in threading.enumerate() if row.name == "forsaken"]
    del thread
    gc.collect()
    served.join(WAIT_SECONDS)
    assert not served.is_alive()


def in_child(thread: LoopThread, work: Callable[[], object]) -> int:
    """Fork, run `work` in the child, and return its exit code: 0 for a true result."""
    child = os.fork()
    if child == 0:
        signal.alarm(WAIT_SECONDS)
        os._exit(0 if work() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def refused(work: Callable[[], object]) -> bool:
    try:
        work()
    except ForkedClientError:
        return True
    return False


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_client_in_a_forked_process_is_refused_and_leaves_the_parents_alone(
    thread: LoopThread,
) -> None:
    coroutines: list[Coroutine[Any, Any, int]] = [value_of(1)]
    assert thread.run(value_of(1)) == 1
    assert in_child(thread, lambda: refused(lambda: thread.run(coroutines[0]))) == 0
    assert in_child(thread, lambda: refused(lambda: thread.post(print))) == 0
    assert in_child(thread, lambda: thread.close() is None) == 0
    assert thread.run(coroutines[0]) == 1


UNCLOSED = """
import asyncio
from ottla.clients.threads.loop_thread import LoopThread, create_background_task

tasks = []

async def begin():
    tasks.append(create_background_task(wait()))
    await asyncio.sleep(0)

async def wait():
    await asyncio.get_running_loop().create_future()

thread = LoopThread("unclosed")
thread.run(begin())
"""


def test_an_interpreter_ends_without_a_word_though_a_client_is_not_closed() -> None:
    ended = in_fresh_process(UNCLOSED)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_forked_process_ends_without_a_word_as_well() -> None:
    program = "import os, warnings\nwarnings.simplefilter('ignore')\n" + UNCLOSED
    ended = in_fresh_process(
        program + "child = os.fork()\nif child: assert os.waitpid(child, 0)[1] == 0"
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
