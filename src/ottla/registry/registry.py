"""The registry on one broker: replays `_schemas`, and writes to it while this broker leads it.

A write: decide on the replayed state → append, fenced by the leader epoch and by the end of the
log that the decision saw → wait until the own records are replayed → respond. If other records got
there first, it decides again. A broker that does not lead forwards the request to the leader's
registry, and responds once it has replayed as far as the leader had: the same client then reads its
own write here.
"""

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, TypeVar

from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.registry.http_messages import HttpRequest, HttpResponse
from ottla.registry.parsed_schemas import HeavyWorkError
from ottla.registry.registry_errors import (
    forwarding_failed,
    leader_without_registry,
    store_failed,
    timed_out,
    unknown_leader,
)
from ottla.registry.registry_machine import Decision, RegistryMachine
from ottla.registry.schemas_log import (
    EndMovedError,
    Leadership,
    LeaderWithoutRegistryError,
    NotLeaderError,
    OutcomeUnknownError,
    SchemasLog,
)

WRITE_SECONDS_MAX: Final = 15.0
"""From the arrival of a write to its response, with all repetitions."""
READY_SECONDS_MAX: Final = 15.0
"""A read waits this long for the first replay."""
HEAVY_JOBS_MAX: Final = 16
"""Jobs that wait for the thread of large schemas; further requests are refused."""
HEAVY_ROUNDS_MAX: Final = 8
"""How often a decision may ask for heavy work."""
HOPS_MAX: Final = 2
HOPS_HEADER: Final = "X-Ottla-Hops"
CONFLUENT_FORWARD_HEADER: Final = "X-Forward"
"""Confluent's form of the same; its presence forbids one more hop."""
END_OFFSET_HEADER: Final = "X-Ottla-End-Offset"
REPLAY_CHUNK_RECORDS: Final = 200
"""Records that are replayed before other requests get their turn."""
_RETRY_MS: Final = 20
_READ_AGAIN_MS: Final = 500

_log = logging.getLogger(__name__)

Forward = Callable[[str, HttpRequest], Awaitable[HttpResponse]]
"""Sends a request to the registry at a base URL; OSError if that fails."""
RunHeavy = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a function without blocking the event loop."""
T = TypeVar("T")


class NotLeaderHereError(Exception):
    """This broker does not lead `_schemas`: the request has to be forwarded."""


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of a write, and the end of the log that contains it."""

    response: Any
    end_offset: int


class HeavyThread:
    """One thread for the work on large schemas: they delay each other, and no other request."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="registry-schemas")

    async def __call__(self, work: Callable[[], None]) -> None:
        """Run a function in the thread, after the functions before it."""
        await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        """Drop the functions that wait; the running one ends by itself."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class Registry:
    """Reads and writes of one broker. All methods belong to one event loop."""

    def __init__(
        self,
        log: SchemasLog,
        machine: RegistryMachine,
        forward: Forward,
        run_heavy: RunHeavy | None = None,
    ) -> None:
        self.machine = machine
        self._state = machine.state
        self._log = log
        self._forward = forward
        self._heavy_thread = HeavyThread()
        self._run_heavy = run_heavy or self._heavy_thread
        self._writing = asyncio.Lock()
        self._heavy_jobs = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()
        self._ready = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether the log has been replayed up to an end once."""
        return self._ready.is_set()

    async def run(self) -> None:
        """Replay the log until cancelled. A failing log is read again from where it failed.

        ApiError OFFSET_OUT_OF_RANGE if the log does not continue this state any more.
        """
        try:
            while True:
                await self._replay_until_failure()
                await pause(_READ_AGAIN_MS)
        finally:
            self._heavy_thread.close()

    async def _replay_until_failure(self) -> None:
        try:
            await self._replay()
        except (OSError, ApiError) as failed:
            if isinstance(failed, ApiError) and failed.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            _log.warning("Reading _schemas failed, trying again: %s", failed)

    async def _replay(self) -> None:
        async for records in self._log.read(self._state.end_offset):
            if not records:
                self._ready.set()
            for index, record in enumerate(records):
                # A log that was read again may begin with records that are known.
                if record.offset >= self._state.end_offset:
                    self._state.replay(record)
                if index % REPLAY_CHUNK_RECORDS == REPLAY_CHUNK_RECORDS - 1:
                    self._wake()
                    await asyncio.sleep(0)  # noqa: TID251 - no time passes
            self._wake()

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._state.end_offset:
            replayed = heapq.heappop(self._waiting)[2]
            if not replayed.done():
                replayed.set_result(None)

    async def wait_ready(self) -> None:
        """Wait for the first replay; RegistryError 50002 if it takes too long."""
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                await self._ready.wait()
        except TimeoutError:
            raise timed_out("_schemas has not been read yet. Retry the request.") from None

    async def wait_replayed(self, end_offset: int) -> None:
        """Wait until the records before an offset are replayed."""
        if self._state.end_offset < end_offset:
            replayed = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (end_offset, next(self._order), replayed))
            await replayed

    # Reads

    async def read(self, answer: Callable[[], T]) -> T:
        """Answer from the state, with heavy work where the answer needs it."""
        if not self.is_ready:
            await self.wait_ready()
        for _ in range(HEAVY_ROUNDS_MAX):
            try:
                return answer()
            except HeavyWorkError as heavy:
                work = heavy.work
            await self._compute(work)
        raise timed_out("the schema was evicted from the cache too often. Retry the request.")

    async def _compute(self, work: Callable[[], None]) -> None:
        if self._heavy_jobs >= HEAVY_JOBS_MAX:
            raise timed_out("too many large schemas are being parsed. Retry the request.")
        self._heavy_jobs += 1
        try:
            await self._run_heavy(work)
        finally:
            self._heavy_jobs -= 1

    # Writes

    async def write(self, decide: Callable[[], Decision]) -> Written:
        """Decide, append and replay; NotLeaderHereError if this broker does not lead."""
        while True:
            leadership = self._log.leadership()
            if leadership is None:
                raise NotLeaderHereError
            try:
                return await self._attempt(decide, leadership)
            except NotLeaderError:
                await pause(_RETRY_MS)
            except EndMovedError:
                await self._wait_for_more()

    async def _attempt(self, decide: Callable[[], Decision], leadership: Leadership) -> Written:
        """Do one attempt of a write; heavy work is done without holding the lock of writes."""
        for _ in range(HEAVY_ROUNDS_MAX):
            try:
                async with self._writing:
                    return await self._write_once(decide, leadership)
            except HeavyWorkError as heavy:
                work = heavy.work
            await self._compute(work)
        raise timed_out("the schema was evicted from the cache too often. Retry the request.")

    async def _write_once(self, decide: Callable[[], Decision], leadership: Leadership) -> Written:
        # Earlier leaders may have written up to the beginning of this epoch.
        await self.wait_replayed(leadership.end_offset)
        decision = decide()
        if not decision.records:
            return Written(decision.response, self._state.end_offset)
        # No await between the decision and the append: both see the same end of the log.
        end_offset = await self._log.append(decision.records, leadership, self._state.end_offset)
        await self.wait_replayed(end_offset)
        return Written(decision.response, end_offset)

    async def _wait_for_more(self) -> None:
        """Wait until replay has moved; a lost wake-up costs one pause only."""
        seen = self._state.end_offset
        try:
            async with asyncio.timeout(_RETRY_MS / 1000):
                await self.wait_replayed(seen + 1)
        except TimeoutError:
            return

    async def write_or_forward(
        self,
        request: HttpRequest,
        decide: Callable[[], Decision],
        respond: Callable[[Written], HttpResponse],
    ) -> HttpResponse:
        """Write here or at the leader; RegistryError if neither works in time."""
        try:
            async with asyncio.timeout(WRITE_SECONDS_MAX):
                return await self._write_somewhere(request, decide, respond)
        except OutcomeUnknownError:
            raise timed_out("the write may or may not have been done.") from None
        except TimeoutError:
            raise timed_out("the write may or may not have been done.") from None
        except LeaderWithoutRegistryError as alone:
            raise leader_without_registry(str(alone)) from None
        except (OSError, ApiError) as failed:
            raise store_failed(str(failed) or type(failed).__name__) from None

    async def _write_somewhere(
        self,
        request: HttpRequest,
        decide: Callable[[], Decision],
        respond: Callable[[Written], HttpResponse],
    ) -> HttpResponse:
        hops = _hops(request)
        is_asked_for_topic = False
        while True:
            try:
                return respond(await self.write(decide))
            except NotLeaderHereError:
                url = self._log.leader_url()
            if hops >= HOPS_MAX:
                raise unknown_leader()
            if url is None:
                if not is_asked_for_topic:
                    await self._log.ensure_topic()
                is_asked_for_topic = True
            else:
                response = await self._at_leader(url, request, hops)
                if response is not None:
                    return response
            await pause(_RETRY_MS)

    async def _at_leader(self, url: str, request: HttpRequest, hops: int) -> HttpResponse | None:
        """Forward a request; None if the other broker does not lead either."""
        headers = {**request.headers, HOPS_HEADER.lower(): str(hops + 1)}
        try:
            response = await self._forward(url, replace(request, headers=headers))
        except TimeoutError:
            raise
        except OSError as failed:
            raise forwarding_failed(str(failed)) from None
        if response.status == 500 and b'"error_code":50004' in response.body:
            return None
        end_offset = dict(response.headers).get(END_OFFSET_HEADER, "")
        if end_offset.isascii() and end_offset.isdigit() and len(end_offset) < 20:
            await self.wait_replayed(int(end_offset))
        return response


def _hops(request: HttpRequest) -> int:
    hops = request.headers.get(HOPS_HEADER.lower(), "")
    if hops.isascii() and hops.isdigit() and len(hops) < 3:
        return int(hops)
    return HOPS_MAX if CONFLUENT_FORWARD_HEADER.lower() in request.headers else 0
