"""A consumer's membership in a classic group: executes the decisions of `MembershipMachine`.

Listeners are called only in `before_poll`, `unsubscribe` and `close`, which block on nothing else
but the end of the membership. A background task sends one request of the machine after the other;
it wakes a waiting poll after each, so that the poll executes the actions that are due.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from logging import getLogger
from typing import Final

from ottla.clients.admin.group_descriptions import assigned_partitions
from ottla.clients.assignors.assignor import Assignor, MemberSubscription
from ottla.clients.assignors.group_bytes import encode_subscription
from ottla.clients.assignors.known import assignors
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.consumer.group.assignment_changes import AssignmentChanges
from ottla.clients.consumer.group.auto_commits import (
    COMMIT_FAILURES,
    AutoCommits,
    BackgroundCommits,
    Offsets,
    OnCommit,
)
from ottla.clients.consumer.group.group_errors import CommitFailedError, RebalanceInProgressError
from ottla.clients.consumer.group.group_requests import GroupRequests
from ottla.clients.consumer.group.group_topics import TopicWatch, share_out
from ottla.clients.consumer.group.membership_machine import (
    NO_GENERATION,
    REMOVED,
    SILENT,
    Act,
    Generation,
    MembershipMachine,
    Request,
    Step,
)
from ottla.clients.consumer.group.offset_commits import OffsetCommits
from ottla.clients.consumer.state.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import SubscriptionState
from ottla.clients.errors import ClientClosedError, NoResponseError, UnreachableError
from ottla.clients.threads.loop_thread import create_background_task
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.join_group import JoinGroupResponse

LEAVE_MS_MAX: Final = 5_000
"""The limit of the last commit and LeaveGroup where no deadline is given."""
MEMBER_ID_SECONDS_MAX: Final = 1.0
"""How long a cancelled first JoinGroup waits for its member id, which LeaveGroup needs."""
_NETWORK: Final = (UnreachableError, NoResponseError)
_log = getLogger(__name__)


class GroupMembership:
    """One member. All methods but `is_due` and `rebalance_count` run on the event loop's thread.

    Deadlines use the loop's clock. The assignment changes only through SubscriptionState, which the
    fetcher follows. `wake` is called when `before_poll` becomes due while a poll waits,
    `on_committed` after every successful commit, also after automatic ones.
    """

    def __init__(
        self,
        view: ClusterView,
        settings: ConsumerSettings,
        state: SubscriptionState,
        wake: Callable[[], None],
        on_committed: Callable[[Offsets], None],
    ) -> None:
        assert settings.group_id is not None
        self._group_id = settings.group_id
        self._settings = settings
        self._state = state
        self._wake = wake
        self._on_committed = on_committed
        self._assignors = assignors(settings.partition_assignment_strategy)
        is_cooperative = all(assignor.is_cooperative for assignor in self._assignors)
        self.machine = MembershipMachine(
            state, settings, view.settings, is_cooperative=is_cooperative
        )
        """The rules; only simulations look at them from outside."""
        self._requests = GroupRequests(view.sibling(), settings.group_id, settings)
        self._offsets = OffsetCommits(self._requests, view)
        self._background = BackgroundCommits(self.commit)
        self._auto = AutoCommits(state, settings)
        self._changes = AssignmentChanges(state)
        self._watch = TopicWatch(self._requests, state, settings)
        self._tasks: list[asyncio.Task[None]] = []
        """The task that sends requests, and after a join the watch of the topics."""
        self._leaving: asyncio.Task[None] | None = None
        self._last_commit: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def rebalance_count(self) -> int:
        """The number of rebalances in which this member received an assignment."""
        return self.machine.rebalance_count

    # -- polling --------------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Return whether `before_poll` has work to do; each call records a poll.

        Cheap, from any thread, called at every poll.
        """
        if self._loop is None:
            return True
        now = self._loop.time()
        self.machine.on_poll(now)
        return self.machine.is_due() or self._background.has_news or self._must_commit(now)

    async def before_poll(self) -> None:
        """Do the due work: listeners, automatic commits, and the steps of a rebalance."""
        self._loop = asyncio.get_running_loop()
        self.machine.on_poll(self._loop.time())
        try:
            await self._background.tell()
            now = self._loop.time()
            if self._must_commit(now):
                self._background.start(self._auto.take(now), self._auto.on_commit)
            while (step := self.machine.next_step()) is not None:
                await self._execute(step)
                self._changes.raise_kept()
        finally:
            self.machine.on_poll(self._loop.time())

    def _must_commit(self, now: float) -> bool:
        return self.machine.may_auto_commit and self._auto.is_due(now)

    async def _execute(self, step: Step) -> None:
        act, names = step
        if act is Act.COMMIT:
            self._start_last_commit(names)
            return
        self._cancel_last_commit()
        if act is Act.REVOKE:
            await self._changes.revoke(names)
            self._auto.forget(names)
        elif act is Act.LOSE:
            self._auto.forget(names)
            await self._changes.lose_all()
        elif act is Act.JOIN:
            _log.info("group %r: joining: %s", self._group_id, self.machine.join_reason)
            self._tasks = [create_background_task(self._send_requests(self._tasks))]
        else:
            await self._assign(names)

    async def _assign(self, names: Collection[TopicPartition]) -> None:
        generation_id = self.machine.assignment_generation.generation_id
        listed = ", ".join(map(str, names)) or "nothing"
        _log.info("group %r: generation %d reads %s", self._group_id, generation_id, listed)
        try:
            await self._changes.assign(names)
        except BaseException:
            self.machine.request_rejoin("assigning was broken off")
            raise

    # -- the last commit before a revocation ----------------------------------------------------

    def _start_last_commit(self, names: tuple[TopicPartition, ...]) -> None:
        """Commit in a task, so that no poll blocks; poll returns no more records of these."""
        self._state.mark_revoking(names)
        if offsets := self._auto.take(asyncio.get_running_loop().time(), frozenset(names)):
            self._last_commit = create_background_task(self._commit_last(names, offsets))
        else:
            self.machine.on_last_commit(names)

    async def _commit_last(self, names: tuple[TopicPartition, ...], offsets: Offsets) -> None:
        try:
            await self._try_last_commit(offsets)
        except Exception:  # noqa: BLE001 - a bug must not keep the partitions from other members
            _log.exception("the last commit before partitions are revoked has failed")
        self.machine.on_last_commit(names)
        self._wake()

    async def _try_last_commit(self, offsets: Offsets) -> None:
        """Commit within the time that a rebalance waits for this member; log a failure."""
        timeout_ms = min(
            self._requests.view.settings.timeout_ms, self._settings.max_poll_interval_ms
        )
        try:
            await self.commit(offsets, timeout_ms)
        except COMMIT_FAILURES as error:
            self._auto.on_commit(offsets, error)

    def _cancel_last_commit(self) -> None:
        if self._last_commit is not None:
            self._last_commit.cancel()
            self._last_commit = None

    # -- committing -----------------------------------------------------------------------------

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without a commit are left out."""
        return await self._offsets.committed(partitions)

    async def commit(self, offsets: Offsets, timeout_ms: int | None = None) -> None:
        """Commit, with retries within default.api.timeout.ms; commits stay in order."""
        if not offsets:
            return
        generation = self.machine.generation
        self.machine.raise_fatal()
        if self.machine.is_subscribed and not generation.is_member:
            raise self._refusal(ErrorCode.UNKNOWN_MEMBER_ID)
        try:
            await self._offsets.commit(generation, offsets, timeout_ms)
        except ApiError as error:
            refusal = self._refused(generation, error)
            raise refusal from None if refusal is error else error
        self._on_committed(offsets)

    def _refused(self, generation: Generation, error: ApiError) -> ApiError:
        """Report a refused commit to the machine; return the error for the application."""
        is_current = generation == self.machine.generation
        self.machine.on_commit_error(generation, error)
        self._wake()
        if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
            return RebalanceInProgressError(self._group_id)
        if error.code in REMOVED and self.machine.is_subscribed:
            return self._refusal(error.code)
        if error.code is ErrorCode.FENCED_INSTANCE_ID and not is_current:
            # This consumer has rejoined since, so it has fenced its own former generation.
            return self._refusal(error.code)
        return error

    def _refusal(self, code: ErrorCode) -> ApiError:
        if self.machine.is_rebalancing:
            return RebalanceInProgressError(self._group_id)
        return CommitFailedError(code, self._group_id)

    def commit_async(self, offsets: Offsets, on_commit: OnCommit | None = None) -> None:
        """Commit in the background; a later poll, or `close`, calls the callback."""
        self._background.start(offsets, on_commit)

    def set_auto_commit(self, *, is_wanted: bool) -> bool:
        """Enable or disable automatic commits; return the former value."""
        was_wanted, self._auto.is_wanted = self._auto.is_wanted, is_wanted
        return was_wanted

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the generation of the assignment, even if the group has removed this member."""
        generation = self.machine.assignment_generation
        return ConsumerGroupMetadata(
            self._group_id,
            generation.generation_id,
            generation.member_id,
            self._requests.instance_id,
        )

    def enforce_rebalance(self, reason: str) -> None:
        """Rejoin with the next poll, unless the member is joining already."""
        self.machine.request_rejoin(reason)
        self._wake()

    # -- requests in the background -------------------------------------------------------------

    async def _send_requests(self, former: Sequence[asyncio.Task[None]]) -> None:
        """Send the machine's requests one at a time, until it has none."""
        await _cancelled(former)
        if self._leaving is not None:
            await asyncio.wait([self._leaving])
        loop = asyncio.get_running_loop()
        while True:
            generation = self.machine.generation
            request = self.machine.next_request(loop.time())
            if request is None:
                return
            if request is Request.JOIN:
                await self._join()
            elif request is Request.HEARTBEAT:
                await self._beat(generation)
            elif request is Request.LEAVE:
                self._leave_for_silence(generation)
            else:
                await pause(1000 * (request - loop.time()))
            self._wake()

    async def _join(self) -> None:
        error: Exception
        try:
            await self._attempt_to_join()
        except _NETWORK as failure:
            self._requests.view.forget_coordinator(self._group_id)
            _log.info("group %r: %s", self._group_id, failure)
            error = failure
        except Exception as failure:  # noqa: BLE001 - an assignor's too: the next poll raises it
            error = failure
        else:
            self._tasks.append(create_background_task(self._watch_topics()))
            return
        self.machine.on_join_error(error, asyncio.get_running_loop().time())

    async def _attempt_to_join(self) -> None:
        machine = self.machine
        metadata_by_assignor = self._encoded(await self._subscription())
        response = await self._join_reserved(metadata_by_assignor)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            machine.on_member_id(response.member_id)
            response = await self._requests.join(
                response.member_id, metadata_by_assignor, machine.join_reason
            )
            self._requests.check(response.error_code)
        generation = Generation(response.generation_id, response.member_id)
        machine.on_join(generation)
        partitions = await self._sync(generation, response)
        machine.on_sync(partitions, asyncio.get_running_loop().time())

    async def _subscription(self) -> MemberSubscription:
        pattern, topics = self._state.pattern, await self._watch.find_topics()
        with self._state.lock:
            if pattern is not None and self._state.pattern is pattern:
                self._state.topics = topics
        self.machine.begin_join(pattern, topics)
        owned = tuple(self._state.assigned) if self.machine.is_cooperative else ()
        return MemberSubscription(
            topics=tuple(sorted(topics)),
            owned_partitions=owned,
            generation_id=self.machine.previous.generation_id if owned else NO_GENERATION,
            rack_id=self._settings.client_rack or None,
        )

    def _encoded(self, subscription: MemberSubscription) -> dict[str, bytes]:
        previous = self.machine.previous
        return {
            assignor.name: encode_subscription(
                replace(subscription, user_data=assignor.user_data(previous))
            )
            for assignor in self._assignors
        }

    async def _join_reserved(self, metadata_by_assignor: Mapping[str, bytes]) -> JoinGroupResponse:
        """Send JoinGroup. A cancelled call without a member id still waits for it, and reports it.

        The coordinator reserves a place for every member id that it issues. The group waits for
        that member until its session times out or it leaves, and leaving requires the id.
        """
        member_id = self.machine.generation.member_id
        joining = asyncio.ensure_future(
            self._requests.join(member_id, metadata_by_assignor, self.machine.join_reason)
        )
        try:
            return await asyncio.shield(joining)
        except asyncio.CancelledError:
            if not member_id and self._requests.instance_id is None:
                await asyncio.wait([joining], timeout=MEMBER_ID_SECONDS_MAX)
            if not joining.cancel() and joining.exception() is None:
                self.machine.on_member_id(joining.result().member_id)
            raise

    async def _sync(
        self, generation: Generation, response: JoinGroupResponse
    ) -> tuple[TopicPartition, ...]:
        """Send SyncGroup; a leader assigns the partitions first."""
        assignor = self._chosen(response.protocol_name)
        view, shared = self._requests.view, None
        if response.leader == response.member_id:
            shared = await view.retried(
                lambda: share_out(
                    view, assignor, response.members, is_skipped=response.skip_assignment
                )
            )
        assignment = await self._requests.sync(
            generation, response.protocol_name, shared.assignments if shared else ()
        )
        self._watch.shared_out = shared.racks_by_topic if shared else None
        return assigned_partitions(assignment)

    def _chosen(self, name: str | None) -> Assignor:
        for assignor in self._assignors:
            if assignor.name == name:
                return assignor
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the coordinator chose assignor {name!r}, which this consumer does not have",
        )

    async def _beat(self, generation: Generation) -> None:
        error: Exception | None = None
        try:
            async with asyncio.timeout(self._settings.session_timeout_ms / 1000):
                await self._requests.beat(generation)
        except (UnreachableError, TimeoutError) as failure:
            self._requests.view.forget_coordinator(self._group_id)
            error = failure
        except ApiError as failure:
            error = failure
        self.machine.on_heartbeat(generation, error, asyncio.get_running_loop().time())
        if error is not None and error is self.machine.fatal:
            _log.error("%s", error)

    async def _watch_topics(self) -> None:
        self.machine.request_rejoin(await self._watch.changed())
        self._wake()

    # -- leaving --------------------------------------------------------------------------------

    async def unsubscribe(self) -> None:
        """Commit if auto-commit is on, call listeners, and leave the group."""
        deadline = asyncio.get_running_loop().time() + LEAVE_MS_MAX / 1000
        try:
            await self._leave_group(deadline, "the consumer has unsubscribed")
        except BaseException:
            self.machine.on_leave_interrupted()
            raise
        self._changes.raise_kept()

    async def close(self, deadline: float) -> None:
        """Commit if auto-commit is on, call listeners, and leave the group unless static."""
        try:
            await self._leave_group(deadline, "the consumer is being closed")
        finally:
            self._background.cancel()
            self._requests.view.close()
            self.machine.on_closed(ClientClosedError("the consumer is closed"))
        self._changes.raise_kept()

    async def _leave_group(self, deadline: float, reason: str) -> None:
        was_joining = self.machine.is_joining
        self.machine.on_leave()
        self._cancel_last_commit()
        if was_joining:
            await self._abandon_join()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._background.drain()
                if not self.machine.has_lost:
                    now = asyncio.get_running_loop().time()
                    await self._try_last_commit(self._auto.take(now))
        await self._tell_all()
        names = list(self._state.assigned)
        self._auto.forget(names)
        if self.machine.has_lost:
            await self._changes.lose_all()
        elif self.machine.is_subscribed:
            await self._changes.revoke(names)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await _cancelled(self._tasks)
                if self._leaving is not None:
                    await asyncio.wait([self._leaving])
                await self._leave(self.machine.generation, reason)
        self.machine.on_left()

    async def _abandon_join(self) -> None:
        """Cancel the join and reconnect: a pending JoinGroup would delay later responses."""
        try:
            await _cancelled(self._tasks)
        finally:
            self._requests.reconnect()

    async def _tell_all(self) -> None:
        """Call all queued commit callbacks; the first exception is raised at the end."""
        while self._background.has_news:
            try:
                await self._background.tell()
            except Exception as error:  # noqa: BLE001 - raised by raise_kept
                self._changes.keep(error)

    def _leave_for_silence(self, generation: Generation) -> None:
        _log.warning(
            "group %r: this consumer has not polled for %d ms, which is max.poll.interval.ms. It "
            "leaves, so that others go on with its partitions, and joins again with the next poll. "
            "Raise max.poll.interval.ms, or lower max.poll.records",
            self._group_id,
            self._settings.max_poll_interval_ms,
        )
        self._leaving = create_background_task(self._leave(generation, SILENT))

    async def _leave(self, generation: Generation, reason: str) -> None:
        """Send LeaveGroup, except for static members, which keep their place. Never fails."""
        if not generation.member_id or self._requests.instance_id is not None:
            return
        with suppress(ApiError, *_NETWORK):
            await self._requests.leave(generation, reason)


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait for their end."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
