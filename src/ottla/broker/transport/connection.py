"""One client connection: requests are dispatched as they arrive, and responses sent in order.

Two limits apply backpressure to a client, and neither affects another client. Requests are not
dispatched while too many are in flight or too many response bytes are unsent; then reading stops,
too, and in the end the peer's TCP send window closes. And when the requests of all clients exceed
the memory limit, connections that hold request memory stop reading.

A connection ends in two steps. It *finishes* when reading ends: the peer has closed its side or has
sent invalid data, or the server stops. Requests in flight are completed, then the socket is closed.
If the peer is gone the socket is closed at once, and requests in flight continue without it. Either
way the requests have `farewell_ms_max` to complete.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.broker.dispatch import Peer
from ottla.broker.requests.request_limits import counted_bytes, frame_bytes_max_of
from ottla.broker.transport.connection_limits import CloseReason
from ottla.broker.transport.pipelined_requests import PipelinedRequests, Request
from ottla.broker.transport.response_writer import Progress, ResponseWriter
from ottla.broker.transport.shared import Shared
from ottla.concurrency.eager_task import start
from ottla.environment.network import StreamSocket
from ottla.rpc.frame_reader import FrameReader
from ottla.wire.protocol_error import ProtocolError

FRUGAL_READ_BYTES: Final = 4096
"""The receive size of a connection without requests while the request memory is full."""
STALLED_BYTES: Final = 1 << 16
"""A peer that reads less than this in `stalled_ms_max` counts as stalled."""
_log = logging.getLogger(__name__)


class _Watched(NamedTuple):
    """Something that has to change in time."""

    reason: CloseReason
    value: int
    ms_max: int


class Connection:
    """A client's connection, from `open` until it calls `on_closed`, with itself and why."""

    __slots__ = (
        "_has_backlog",
        "_held_bytes",
        "_in_flight",
        "_incoming",
        "_is_deferred",
        "_is_fetching",
        "_is_open",
        "_is_reading",
        "_is_reported",
        "_is_turn_planned",
        "_is_writing",
        "_on_closed",
        "_outgoing",
        "_reason",
        "_shared",
        "_socket",
        "_watched",
        "_watched_since_ms",
        "peer",
    )

    def __init__(
        self,
        connected: StreamSocket,
        peer: Peer,
        shared: Shared,
        on_closed: Callable[["Connection", CloseReason], None],
    ) -> None:
        self.peer = peer
        self._shared = shared
        self._on_closed = on_closed
        self._socket = connected
        self._is_open = True
        self._incoming = FrameReader(
            shared.limits.frame_bytes_max, shared.scratch, shared.pool, frame_bytes_max_of
        )
        self._outgoing = ResponseWriter(shared.cold_reads, shared.threads)
        self._in_flight = PipelinedRequests()
        self._held_bytes = 0  # the incoming side's share of the request memory
        self._has_backlog = False  # frames are here that may not be begun yet
        self._is_reading = self._is_writing = self._is_fetching = False
        self._is_turn_planned = self._is_reported = self._is_deferred = False
        self._reason: CloseReason | None = None  # why nothing more is read
        self._watched: _Watched | None = None
        self._watched_since_ms = 0

    def open(self) -> None:
        """Begin to read. The socket must not block."""
        self._read_on()

    def _may_begin(self) -> bool:
        limits, in_flight = self._shared.limits, self._in_flight
        return (
            self._reason is None
            and len(in_flight.requests) < limits.in_flight_requests_max
            and in_flight.waiting_bytes + self._outgoing.unsent_bytes < limits.output_bytes_max
        )

    def _read_on(self) -> None:
        """Read whenever something arrives, unless requests could not be begun anyway."""
        if self._is_reading or not self._is_open or self._has_backlog or not self._may_begin():
            return
        self._is_reading = True
        self._shared.loop.add_reader(self._socket, self._on_readable)

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._shared.loop.remove_reader(self._socket)
            self._shared.memory.forget(self._read_on)

    def _on_readable(self) -> None:
        if self._in_flight.running and self._shared.slices.is_over:
            if not self._is_deferred:  # first requests of other connections go ahead
                self._is_deferred = True
                self._shared.loop.call_soon(self._read_deferred)
        elif not self._is_deferred:
            self._read()

    def _read_deferred(self) -> None:
        self._is_deferred = False
        if self._is_reading:
            self._on_readable()

    def _read(self) -> None:
        # Checked only now: most clients send no more before they get a response.
        if self._has_backlog or not self._may_begin():
            self._stop_reading()
            return
        memory = self._shared.memory
        if not memory.is_full:
            self._receive()
        # A small request still gets through while large ones fill the memory: a heartbeat that
        # waits would cost its member the session.
        elif not self._held_bytes and not self._in_flight:
            self._receive(FRUGAL_READ_BYTES)
        elif self._held_bytes and memory.favours(self._read_on):
            self._receive()
        else:
            self._stop_reading()
            memory.wait(self._read_on, has_part=self._held_bytes > 0)

    def _receive(self, bytes_max: int | None = None) -> None:
        try:
            received_bytes = self._socket.recv_into(self._incoming.room()[:bytes_max])
        except BlockingIOError:
            self._incoming.release_scratch()
            return
        except OSError:
            self._lose(CloseReason.PEER_CLOSED)
            return
        if received_bytes == 0:
            self.finish(CloseReason.PEER_CLOSED)
            return
        self._incoming.received(received_bytes)
        in_flight = self._in_flight
        if self._begin_requests() and in_flight.running < len(in_flight.requests):
            self._turn()

    def _begin_requests(self) -> bool:
        """Begin received requests as far as the limits allow; return whether any was begun."""
        incoming = self._incoming
        begun_before = incoming.frame_count
        is_over = False
        try:
            while incoming.has_unread and self._may_begin():
                # Further requests share the time of this iteration with other connections.
                is_further = self._in_flight.running > 0 or incoming.frame_count > begun_before
                is_over = is_further and self._shared.slices.is_over
                if is_over:
                    break
                frame = incoming.take_frame()
                if frame is None:
                    break
                self._begin(frame)
        except ProtocolError as error:
            self._shared.invalid_requests.log(self.peer, error)
            self.finish(CloseReason.INVALID_FRAME)
        has_unread = incoming.has_unread
        self._has_backlog = has_unread and (is_over or not self._may_begin())
        if is_over:
            self._plan_turn()
        incoming.release_scratch()
        if has_unread or self._held_bytes:
            self._count_held()
        return incoming.frame_count > begun_before

    def _count_held(self) -> None:
        held_before, self._held_bytes = self._held_bytes, self._incoming.held_bytes
        if self._held_bytes != held_before:
            self._shared.memory.arriving(self._held_bytes - held_before)
            if not self._held_bytes:
                self._shared.memory.forget(self._read_on)

    def _begin(self, frame: memoryview) -> None:
        request = self._in_flight.add()
        request.waiting = start(self._serve(request, frame), self._shared.loop)

    async def _serve(self, request: Request, frame: memoryview) -> None:
        size_bytes = counted_bytes(frame)
        self._shared.memory.answering(size_bytes)
        try:
            answer = await self._shared.dispatch(self.peer, frame)
            self._in_flight.answer(request, () if answer is None else answer)
        except ProtocolError as error:
            self._shared.invalid_requests.log(self.peer, error)
            self._refuse(request, CloseReason.INVALID_FRAME)
        except Exception:  # noqa: BLE001 - one request's bug ends one connection
            _log.exception("A request from %s failed", self.peer)
            self._refuse(request, CloseReason.REQUEST_FAILED)
        finally:
            self._in_flight.running -= 1
            self._shared.memory.answering(-size_bytes)
            if request.waiting is not None:  # else the dispatch has completed without waiting
                self._answered_late()

    def _refuse(self, request: Request, reason: CloseReason) -> None:
        self._in_flight.refuse(request)
        self.finish(reason)

    def _answered_late(self) -> None:
        """Send now if no other request can complete in the same iteration of the loop."""
        if self._in_flight.running:
            self._plan_turn()
        elif not self._is_turn_planned:
            self._turn()

    def _plan_turn(self) -> None:
        """Send once for all requests that complete in the same iteration of the loop."""
        if not self._is_turn_planned:
            self._is_turn_planned = True
            self._shared.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_planned = False
        if self._is_open:
            for answer in self._in_flight.take_answers():
                self._outgoing.add(answer)
            if not self._is_writing and not self._is_fetching:
                self._send()
        self._go_on()

    def _go_on(self) -> None:
        """Continue with work that sending may have made possible."""
        if self._has_backlog and self._may_begin() and self._begin_requests():
            self._plan_turn()
        self._read_on()
        self._end_if_done()

    def _send(self) -> None:
        try:
            progress = self._outgoing.send(self._socket)
        except (ConnectionError, TimeoutError):
            self._lose(CloseReason.PEER_CLOSED)
        except Exception as error:  # noqa: BLE001 - even a bug must not leave the peer waiting
            self._lose_unsent(error)
        else:
            if self._is_writing or progress is not Progress.DONE:
                self._wait_to_send(progress)

    def _wait_to_send(self, progress: Progress) -> None:
        if progress is Progress.BLOCKED or progress is Progress.TURN_OVER:
            if not self._is_writing:
                self._is_writing = True
                self._shared.loop.add_writer(self._socket, self._on_writable)
            return
        self._stop_writing()
        if progress is Progress.COLD:
            self._fetch()

    def _stop_writing(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self._shared.loop.remove_writer(self._socket)

    def _on_writable(self) -> None:
        self._send()
        self._go_on()

    def _fetch(self) -> None:
        chunk = self._outgoing.cold_chunk
        assert chunk is not None
        self._is_fetching = True
        shared = self._shared
        fetched = shared.loop.run_in_executor(shared.threads, shared.cold_reads.fetch, *chunk)
        fetched.add_done_callback(self._on_fetched)

    def _on_fetched(self, fetched: asyncio.Future[None]) -> None:
        self._is_fetching = False
        error = fetched.exception()
        if not self._is_open:
            return
        if error is not None:
            self._lose_unsent(error)
            return
        self._outgoing.on_chunk_fetched()
        self._send()
        self._go_on()

    def finish(self, reason: CloseReason) -> None:
        """Stop reading; close when all requests in flight are completed."""
        if self._reason is not None:
            return
        self._reason = reason
        self._stop_reading()
        self._incoming.clear()
        self._has_backlog = False
        self._count_held()
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._reason is None:
            return
        is_answered = self._in_flight.is_broken or not self._in_flight
        if self._is_open:
            if is_answered and not self._outgoing.unsent_bytes:
                self._close()
        elif not self._in_flight.running:
            self._report()

    def _lose_unsent(self, error: BaseException) -> None:
        _log.warning("An answer to %s cannot be sent: %s", self.peer, error)
        self._lose(CloseReason.SEND_FAILED)

    def _lose(self, reason: CloseReason) -> None:
        """Close at once, without responses to requests in flight."""
        self._outgoing.clear()
        self.finish(reason)
        if self._is_open:
            self._close()

    def _close(self) -> None:
        self._stop_writing()
        self._shared.memory.forget(self._read_on)
        self._socket.close()
        self._is_open = False
        self._end_if_done()

    def _report(self) -> None:
        if not self._is_reported:
            self._is_reported = True
            assert self._reason is not None
            self._on_closed(self, self._reason)

    @property
    def answers_bytes(self) -> int:
        """The memory of responses that the peer does not read."""
        return self._outgoing.memory_bytes + self._in_flight.memory_bytes if self._is_writing else 0

    def tick(self, now_ms: int, *, is_crowded: bool = False) -> None:
        """Close the connection if the peer has exceeded a timeout at this time."""
        watched = self._to_watch(is_crowded=is_crowded)
        if watched != self._watched:
            self._watched = watched
            self._watched_since_ms = now_ms
        elif watched is not None and now_ms - self._watched_since_ms >= watched.ms_max:
            self._time_is_up(watched.reason)

    def _to_watch(self, *, is_crowded: bool) -> _Watched | None:
        limits = self._shared.limits
        if self._reason is not None:
            return _Watched(self._reason, 0, limits.farewell_ms_max)
        if self._is_writing:
            is_hurried = is_crowded and self.answers_bytes >= STALLED_BYTES
            ms_max = limits.crowded_stalled_ms_max if is_hurried else limits.stalled_ms_max
            return _Watched(CloseReason.STALLED, self._progress(), ms_max)
        frame_count = self._incoming.frame_count
        if self._incoming.has_unread and self._may_begin():
            return _Watched(CloseReason.SLOW_FRAME, frame_count, limits.frame_ms_max)
        if not self._in_flight and not self._is_fetching:
            return _Watched(CloseReason.IDLE, frame_count, limits.idle_ms_max)
        return None

    def _progress(self) -> int:
        """Return a number that grows as long as the peer receives its responses.

        A socket accepts more only when a good part of its buffer is free, so the sent bytes would
        not distinguish a slow reader from a peer that does not read.
        """
        untaken_bytes = self._shared.network.untaken_bytes(self._socket)
        return (self._outgoing.sent_bytes - untaken_bytes) // STALLED_BYTES

    def _time_is_up(self, reason: CloseReason) -> None:
        if self._reason is not None:
            self._abandon()
        elif reason is CloseReason.STALLED:
            self._lose(reason)
        else:
            self.finish(reason)

    def _abandon(self) -> None:
        """Close now, with requests in flight."""
        assert self._reason is not None
        self._lose(self._reason)
        self._in_flight.cancel()
        self._report()
