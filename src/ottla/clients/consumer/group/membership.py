"""A consumer's membership in a classic group: join, heartbeat, rebalance and leave.

Listeners are called only in `before_poll`, `unsubscribe` and `close`. Joining and heartbeats run in
tasks of their own, so that neither depends on how often the application polls:

    before_poll:  revoke partitions  ─► start to join   ...  revoke, assign ─► (again, or poll)
    tasks:        last commit, JoinGroup, SyncGroup ─► heartbeats ─► "rebalance": wakes the poll
                                                                 └─► "lost": on_lost with the next

`before_poll` blocks only on listeners. Each task wakes the poll when it ends; the next call
continues the rebalance:

    rebalance                 a poll continues it when             woken by
    none                      there is a reason to join, or lost   `MemberState`
                              the subscription has changed         not needed: a poll follows
    last commit, then join    the commit has ended, or lost        `LastCommit`, `MemberState`
    joining                   the join has succeeded or failed     `_joining`
    last commit, then assign  the commit has ended, or lost        `LastCommit`, `MemberState`
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from logging import getLogger
from typing import Final

from ottla.clients.assignors.assignor import MemberSubscription, PreviousAssignment
from ottla.clients.assignors.known import assignors
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.consumer.group.assignment_changes import AssignmentChanges
from ottla.clients.consumer.group.auto_commits import AutoCommits, BackgroundCommits, OnCommit
from ottla.clients.consumer.group.final_auto_commit import LastCommit
from ottla.clients.consumer.group.group_metadata import ConsumerGroupMetadata
from ottla.clients.consumer.group.group_protocol import OffsetAndMetadata
from ottla.clients.consumer.group.group_requests import NO_GENERATION, GroupRequests
from ottla.clients.consumer.group.heartbeat_tasks import HeartbeatTasks
from ottla.clients.consumer.group.joining import JoinAttempt, Joined
from ottla.clients.consumer.group.member_commits import MemberCommits
from ottla.clients.consumer.group.member_state import LOST, MemberState
from ottla.clients.consumer.group.offset_commits import OffsetCommits
from ottla.clients.consumer.group.topic_watch import TopicWatch
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import Choice, SubscriptionState
from ottla.clients.errors import RETRIABLE, ClientClosedError, NoAnswerError, UnreachableError
from ottla.clients.threads.loop_thread import create_background_task
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition

LEAVE_MS_MAX: Final = 5_000
"""The limit of the last commit and LeaveGroup where no deadline is given."""
_PASSING: Final = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED)
_log = getLogger(__name__)


class GroupMembership:
    """One member. `wake` is called when `before_poll` becomes due while a poll waits.

    `on_committed` is called after every successful commit, also after automatic ones.
    """

    def __init__(
        self,
        view: ClusterView,
        settings: ConsumerSettings,
        state: SubscriptionState,
        wake: Callable[[], None],
        on_committed: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None],
    ) -> None:
        assert settings.group_id is not None
        self._settings = settings
        self._state = state
        self._wake = wake
        self._assignors = assignors(settings.partition_assignment_strategy)
        self._is_cooperative = all(assignor.is_cooperative for assignor in self._assignors)
        self._requests = GroupRequests(view.sibling(), settings.group_id, settings)
        self._standing = MemberState(settings.group_id, state, wake)
        self._offsets = OffsetCommits(self._requests, view)
        self._commits = MemberCommits(self._offsets, self._standing, on_committed)
        self._background = BackgroundCommits(self._commits.commit)
        self._auto = AutoCommits(state, settings)
        self._last_commit = LastCommit(self._auto, self._commit_in_time, wake)
        self._changes = AssignmentChanges(state)
        self._watch = TopicWatch(self._requests, state, settings)
        self._joiner = JoinAttempt(self._requests, self._assignors, self._standing.become)
        self._keeping_up = HeartbeatTasks(
            self._requests, settings, self._standing, self._watch, lambda: self._polled_at, wake
        )
        self._joined_for: tuple[object, frozenset[str]] | None = None
        self._joining: asyncio.Task[Joined | None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._polled_at = 0.0
        self._last_commit_ms_max = min(view.settings.timeout_ms, settings.max_poll_interval_ms)
        self.rebalance_count = 0

    # -- polling --------------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Return whether `before_poll` has work to do; each call records a poll."""
        if self._loop is None:
            return True
        self._polled_at = now = self._loop.time()
        return (
            self._standing.failure is not None
            or self._background.has_news
            or self._is_rebalance_due()
            or self._must_commit(now)
        )

    async def before_poll(self) -> None:
        """Do the due work; joins and commits run in the background."""
        self._has_polled()
        try:
            await self._background.tell()
            self._standing.raise_failure()
            if self._must_commit(self._polled_at):
                self._background.start(self._auto.take(self._polled_at), self._auto.on_commit)
            while self._is_rebalance_due():
                if not await self._take_part():
                    return
        finally:
            self._has_polled()

    def _has_polled(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._polled_at = self._loop.time()

    def _must_commit(self, now: float) -> bool:
        """Return whether an automatic commit is due; none is during a rebalance."""
        is_rebalancing = self._joining is not None or self._last_commit.is_begun
        return not is_rebalancing and self._auto.is_due(now)

    def _is_rebalance_due(self) -> bool:
        """Return whether a rebalance must start or continue; fetching continues meanwhile."""
        if not self._standing.is_subscribed:
            return False
        if self._last_commit.is_begun:
            return self._standing.is_lost or not self._last_commit.is_under_way
        if self._joining is not None:
            return self._joining.done()
        return (
            self._standing.rejoin_reason is not None
            or self._standing.is_lost
            or self._joined_for != (self._state.pattern, self._state.topics)
        )

    # -- committing -----------------------------------------------------------------------------

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without a commit are left out."""
        return await self._offsets.committed(partitions)

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int | None = None
    ) -> None:
        """Commit, with retries within default.api.timeout.ms; commits stay in order."""
        await self._commits.commit(offsets, timeout_ms)

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], on_commit: OnCommit | None = None
    ) -> None:
        """Commit in the background; a later poll, or `close`, calls the callback."""
        self._background.start(offsets, on_commit)

    def set_auto_commit(self, *, is_wanted: bool) -> bool:
        """Enable or disable automatic commits; return the former value."""
        was_wanted, self._auto.is_wanted = self._auto.is_wanted, is_wanted
        return was_wanted

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the generation of the assignment, even if the group has removed this member."""
        generation = self._standing.reads_as
        return ConsumerGroupMetadata(
            self._requests.group_id,
            generation.generation_id,
            generation.member_id,
            self._requests.instance_id,
        )

    async def _commit_in_time(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit within the time that a rebalance waits for this member."""
        await self._commits.commit(offsets, self._last_commit_ms_max)

    # -- rebalancing ----------------------------------------------------------------------------

    def enforce_rebalance(self, reason: str) -> None:
        """Rejoin with the next poll, unless the member is joining already."""
        if self._joining is None or self._joining.done():
            self._standing.request_rejoin(reason)

    async def _take_part(self) -> bool:
        """Advance the rebalance; False if it continues in the background."""
        if self._standing.is_lost:
            await self._give_up()
        if self._joining is None:
            if not await self._prepare():
                return False
            self._start_joining()
        assert self._joining is not None
        if not self._joining.done():
            return False
        is_over = True
        try:
            joined = self._joining.result()
            if joined is not None and joined.generation == self._standing.generation:
                is_over = await self._complete(joined)
        except BaseException:
            self._standing.request_rejoin("joining has failed, or was broken off")
            raise
        finally:
            if is_over:
                self._end_joining()
        self._changes.raise_kept()
        return is_over

    def _end_joining(self) -> None:
        self._last_commit.cancel()
        self._joining, self._standing.is_joining = None, False

    async def _prepare(self) -> bool:
        """Revoke partitions before joining: all, or, if cooperative, those of unsubscribed topics.

        False if the last commit is still running, or a listener has unsubscribed.
        """
        assigned = list(self._state.assigned)
        if self._is_cooperative:
            is_pattern = self._state.choice is Choice.PATTERN  # its topics are not resolved yet
            wanted = self._state.topics
            assigned = [name for name in assigned if not is_pattern and name.topic not in wanted]
        try:
            is_over = await self._revoke(assigned)
        except BaseException:
            self._standing.request_rejoin("giving back was broken off")
            raise
        self._changes.raise_kept()
        self._standing.raise_failure()  # a listener may have closed the consumer
        return is_over and self._standing.is_subscribed

    def _start_joining(self) -> None:
        reason = self._standing.rejoin_reason or "the subscription has changed"
        self._standing.rejoin_reason = None
        self._standing.is_joining = True
        self._last_commit.cancel()
        self._joining = create_background_task(self._join(reason))
        self._joining.add_done_callback(lambda _: self._wake())

    async def _complete(self, joined: Joined) -> bool:
        """Apply the assignment; False while the last commit of revoked partitions runs."""
        generation_id = joined.generation.generation_id
        self._standing.reads_as = joined.generation
        self._standing.previous = PreviousAssignment(joined.partitions, generation_id)
        given = [name for name in joined.partitions if name.topic in self._state.topics]
        kept = set(given)
        gone = [name for name in self._state.assigned if name not in kept]
        if not await self._revoke(gone):
            return False
        if joined.generation != self._standing.generation:
            return True  # another rebalance began while listeners were called
        if gone:
            self._standing.request_rejoin("partitions were revoked, and can be given to others")
        await self._changes.assign(given)
        self.rebalance_count += 1
        names = ", ".join(map(str, given)) or "nothing"
        _log.info("group %r: generation %d reads %s", self._requests.group_id, generation_id, names)
        return True

    async def _revoke(self, names: Collection[TopicPartition]) -> bool:
        is_over = await self._changes.revoke(names, self._last_commit.go_on)
        if is_over:
            self._auto.forget(names)
        return is_over

    async def _give_up(self) -> None:
        self._last_commit.cancel()
        self._auto.forget(list(self._state.assigned))
        await self._changes.lose_all()
        self._standing.is_lost = False
        self._changes.raise_kept()

    async def _join(self, reason: str) -> Joined | None:
        """Join; None if another rebalance has begun or the member id is unknown: start over."""
        await self._keeping_up.stop()
        view = self._requests.view
        backoff_ms = view.settings.retry_backoff_ms
        while True:
            try:
                joined = await self._attempt_to_join(reason)
            except (UnreachableError, NoAnswerError) as error:
                view.forget_coordinator(self._requests.group_id)
                _log.info("group %r: %s", self._requests.group_id, error)
            except ApiError as error:
                if error.code in LOST:
                    self._standing.lose(error.code, f"joining was answered with {error.code.name}")
                elif error.code in _PASSING:
                    self._standing.request_rejoin("the group has begun another rebalance")
                elif error.code not in RETRIABLE:
                    raise
                if error.code not in RETRIABLE:
                    await pause(backoff_ms)
                    return None
            else:
                self._keeping_up.start(joined)
                return joined
            await pause(backoff_ms)
            backoff_ms = min(2 * backoff_ms, view.settings.retry_backoff_max_ms)

    async def _attempt_to_join(self, reason: str) -> Joined:
        pattern, topics = self._state.pattern, await self._watch.find_topics()
        with self._state.lock:
            if pattern is not None and self._state.pattern is pattern:
                self._state.topics = topics
        self._joined_for = (pattern, topics)
        owned = tuple(self._state.assigned) if self._is_cooperative else ()
        previous = self._standing.previous
        subscription = MemberSubscription(
            topics=tuple(sorted(topics)),
            owned_partitions=owned,
            generation_id=previous.generation_id if owned else NO_GENERATION,
            rack_id=self._settings.client_rack or None,
        )
        member_id = self._standing.generation.member_id
        return await self._joiner.attempt(member_id, subscription, previous, reason)

    # -- leaving --------------------------------------------------------------------------------

    async def unsubscribe(self) -> None:
        """Commit if auto-commit is on, call listeners, and leave the group."""
        deadline = asyncio.get_running_loop().time() + LEAVE_MS_MAX / 1000
        try:
            await self._leave_group(deadline, "the consumer has unsubscribed")
        except BaseException:
            self._standing.request_rejoin("leaving was broken off")
            raise
        self._joined_for = None
        self._changes.raise_kept()

    async def close(self, deadline: float) -> None:
        """Commit if auto-commit is on, call listeners, and leave the group unless static."""
        try:
            await self._leave_group(deadline, "the consumer is being closed")
        finally:
            self._background.cancel()
            self._requests.view.close()
            self._standing.failure = ClientClosedError("the consumer is closed")
        self._changes.raise_kept()

    async def _leave_group(self, deadline: float, reason: str) -> None:
        await self._abandon_join()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._background.drain()
                if not self._standing.is_lost:
                    loop = asyncio.get_running_loop()
                    await self._last_commit.make(self._auto.take(loop.time()))
        await self._tell_all()
        self._auto.forget(list(self._state.assigned))
        if self._standing.is_lost:
            await self._changes.lose_all()
        elif self._standing.is_subscribed:
            await self._changes.revoke(list(self._state.assigned))
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._keeping_up.stop()
                await self._keeping_up.leave(self._standing.generation, reason)
        self._standing.reset()

    async def _tell_all(self) -> None:
        """Call all queued commit callbacks; the first exception is raised at the end."""
        while self._background.has_news:
            try:
                await self._background.tell()
            except Exception as error:  # noqa: BLE001 - raised by raise_kept
                self._changes.keep(error)

    async def _abandon_join(self) -> None:
        """Cancel the join and reconnect: a pending JoinGroup would delay later responses."""
        joining = self._joining
        self._end_joining()
        if joining is not None and not joining.done():
            joining.cancel()
            try:
                await asyncio.wait([joining])
            finally:
                self._requests.reconnect()
