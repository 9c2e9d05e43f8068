"""Runs one state machine over one log: the common part of coordinators and metadata stores.

    decide --> append and replay --> committed --> publish --> respond
      |               |                  |            |
    sees all      one step without    one wait     in the order
    earlier       a suspension        serves all   of the decisions
    decisions                         before it

Deciding does not wait: later decisions are based on earlier ones that are not committed yet. All
other code sees a decision when it is published, and a response leaves after it is committed. If the
wait for a commit fails, the callers get its error. The decision stands in the log, and is published
if a later wait succeeds: the outcome is unknown, as after any lost response. A log that can no
longer commit anything is replaced, with its machine and its runtime.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeAlias, TypeVar

from ottla.machines.decision import Decision
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset

E = TypeVar("E")
M = TypeVar("M")
R = TypeVar("R")
T = TypeVar("T")
R_contra = TypeVar("R_contra", contravariant=True)
E_co = TypeVar("E_co", covariant=True)

Outcome: TypeAlias = asyncio.Future[ApiError | None]
"""None when something is published, or the error of a failed or uncertain attempt."""


class DecisionLog(Protocol[R_contra, E_co]):
    """The log of one machine, for as long as this broker may append to it."""

    @property
    def end_offset(self) -> Offset:
        """The position after the last decision."""
        ...

    def write(self, records: tuple[R_contra, ...]) -> E_co | None:
        """Append the records of a decision and replay them; return the update to publish, if any.

        If this raises, nothing is appended, and nothing replayed. Machines that cannot undo a
        replay append first; the next image is computed first, because records that cannot
        be replayed must not get into the log.

        Decisions without records come here, too. A log whose owner may have been replaced without
        notice makes the response wait until it has proved that this is not so.
        """
        ...

    def is_committed(self, end_offset: Offset) -> bool:
        """Whether everything before a position is committed, so that nothing has to be awaited."""
        ...

    async def committed(self, end_offset: Offset) -> None:
        """Return when everything before a position is committed; ApiError if that is uncertain.

        `DecisionRuntime.published` calls this in one task that is never cancelled. A log whose
        users wait by `DecisionRuntime.committed` also bears concurrent calls, and cancelled ones.
        """
        ...


@dataclass(slots=True)
class _Uncommitted(Generic[E]):
    """A position of the log that is to be committed, and the effect of the decision before it."""

    effect: E | None
    end_offset: Offset
    outcome: Outcome


class DecisionRuntime(Generic[M, R, E]):
    """Decides, and publishes committed decisions. Belongs to one event loop.

    `publish` is called in the order of the decisions, and must not raise; it may return a future
    that completes when the effect is published. After a failed wait for the log, `pause` delays the
    next attempt, or returns False to give up. Without it, the next decision or caller tries again.
    """

    def __init__(
        self,
        machine: M,
        log: DecisionLog[R, E],
        publish: Callable[[E], Outcome | None],
        pause: Callable[[ApiError], Awaitable[bool]] | None = None,
    ) -> None:
        self.machine = machine
        self.log = log
        self._publish = publish
        self._pause = pause
        self._uncommitted: deque[_Uncommitted[E]] = deque()
        self._last_outcome: Outcome | None = None
        self._publishing: asyncio.Task[None] | None = None
        self._failure: ApiError | None = None

    def decide(
        self,
        decide: Callable[[M], Decision[R, T]],
        log: DecisionLog[R, E] | None = None,
    ) -> T:
        """Decide, append and replay, and return the response, which may not be sent yet.

        ApiErrors of `decide` and of the log come through; then nothing has happened. `log` is
        another way to append to the same log. After a failure that is no ApiError, such as a bug,
        nothing is decided any more.
        """
        if self._failure is not None:
            raise ApiError(self._failure.code, self._failure.detail)
        decision = decide(self.machine)
        effect = (log or self.log).write(decision.records)
        if effect is not None:
            self.publish_once_committed(effect)
        return decision.response

    def publish_once_committed(self, effect: E) -> None:
        """Publish the effect of everything that is in the log now, once that is committed."""
        end_offset = self.log.end_offset
        if not self._uncommitted and self.log.is_committed(end_offset):
            self._last_outcome = self._publish(effect)
            return
        self._publish_later(effect, end_offset)

    async def committed(self) -> None:
        """Return when everything that is decided now is committed; ApiError if that is uncertain.

        Cancelling the wait does not take the decisions back.
        """
        end_offset = self.log.end_offset
        if not self.log.is_committed(end_offset):
            await self.log.committed(end_offset)

    async def published(self) -> None:
        """Return when everything that is decided now is committed and published; else ApiError."""
        end_offset = self.log.end_offset
        if not self.log.is_committed(end_offset):
            if self._uncommitted and self._uncommitted[-1].end_offset == end_offset:
                self._publish_soon()  # after a failed attempt
            else:
                self._publish_later(None, end_offset)
        outcome = self._last_outcome
        if outcome is not None:
            # Shielded: other waiters share the future, and a cancelled one must not end it.
            error = await asyncio.shield(outcome)
            if error is not None:
                raise ApiError(error.code, error.detail)

    async def finish(self) -> None:
        """Wait until the publishing of committed decisions comes to rest."""
        if self._publishing is not None:
            await asyncio.wait([self._publishing])

    def close(self) -> None:
        """Publish nothing any more."""
        if self._publishing is not None:
            self._publishing.cancel()

    # -- publishing -----------------------------------------------------------------------------

    def _new_outcome(self) -> Outcome:
        self._last_outcome = asyncio.get_running_loop().create_future()
        return self._last_outcome

    def _publish_later(self, effect: E | None, end_offset: Offset) -> None:
        self._uncommitted.append(_Uncommitted(effect, end_offset, self._new_outcome()))
        self._publish_soon()

    def _publish_soon(self) -> None:
        # In a later iteration: one flush serves all decisions of this iteration.
        if self._publishing is None:
            self._publishing = asyncio.ensure_future(self._publish_committed())

    async def _publish_committed(self) -> None:
        try:
            while self._uncommitted and await self._publish_next():
                pass
        except (asyncio.CancelledError, GeneratorExit):
            raise  # the runtime is closed, or its process is gone
        except BaseException as error:
            self._failure = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))
            for decided in self._uncommitted:
                decided.outcome.set_result(self._failure)
            raise
        finally:
            self._publishing = None

    async def _publish_next(self) -> bool:
        """Publish the next effect once it is committed; False if that has to be begun anew."""
        try:
            await self.log.committed(self._uncommitted[0].end_offset)
        except ApiError as error:
            self._fail_waiting(error)
            return self._pause is not None and await self._pause(error)
        self._publish_one(self._uncommitted[0])
        self._uncommitted.popleft()
        return True

    def _publish_one(self, decided: _Uncommitted[E]) -> None:
        published = None if decided.effect is None else self._publish(decided.effect)
        if published is None:
            decided.outcome.set_result(None)
        else:
            published.add_done_callback(partial(_pass_on, decided.outcome))

    def _fail_waiting(self, error: ApiError) -> None:
        """Answer the waiting callers; their decisions are published if a later wait succeeds."""
        for decided in self._uncommitted:
            decided.outcome.set_result(error)
            decided.outcome = self._new_outcome()


def _pass_on(outcome: Outcome, published: Outcome) -> None:
    outcome.set_result(published.result())
