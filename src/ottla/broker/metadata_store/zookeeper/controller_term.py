"""A controller's term: from winning `/controller` to the first failed or uncertain write.

    win --> load --> look at the brokers --> decide, commit, publish ... --> over
     |                                            |
     the epoch is one higher,                every commit begins with a check of
     and with it the version                 that version: a former controller
     of `/controller_epoch`                  can commit nothing any more

A term never resumes. Any write that ZooKeeper does not confirm ends it, and all decisions that wait
get NOT_CONTROLLER. The next term, of this broker or another, begins by reading the current state.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from ottla.broker.decision_runtime import DecisionRuntime, Outcome
from ottla.broker.metadata_store.image_publisher import PublishedChange
from ottla.broker.metadata_store.metadata_history import MetadataFeed, first_offset
from ottla.broker.metadata_store.zookeeper.unfinished_work import (
    elect_where_nobody_leads,
    is_same_life,
    known_brokers,
    missing_states,
    repairs,
)
from ottla.broker.metadata_store.zookeeper.znode_reads import (
    get_or_none,
    live_brokers,
    load,
)
from ottla.broker.metadata_store.zookeeper.znode_writes import Unit, commits_for
from ottla.broker.metadata_store.zookeeper.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    LiveBroker,
    UnreadableZnodeError,
    controller_data,
    read_number,
)
from ottla.environment.clock import Clock
from ottla.environment.zookeeper import (
    BadVersionError,
    Check,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    Write,
    ZooKeeperError,
    ZooKeeperSession,
)
from ottla.machines.controller.config_checks import MIN_ISR
from ottla.machines.controller.machine import Controller
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.difference import registration_record
from ottla.metadata.image import EVERY_BROKER, ClusterImage
from ottla.metadata.records import MetadataRecord
from ottla.metadata.replay import UnreplayableRecordError, replay
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, Offset

Publish = Callable[[ClusterImage, tuple[MetadataRecord, ...]], Outcome]
"""Takes decisions, in order, and completes when the broker has applied them."""
Decide = Callable[[Controller], Decision[MetadataRecord, "T"]]
T = TypeVar("T")

_log = logging.getLogger(__name__)


class Office(NamedTuple):
    """The result of a won election."""

    epoch: int
    version: int
    """The version of `/controller_epoch` until another broker wins."""


async def win(session: ZooKeeperSession, broker_id: BrokerId, now_ms: int) -> Office | None:
    """Become the controller, unless there is one. ZooKeeperError if the outcome is unknown.

    A session that holds `/controller` already, from a term with an unknown outcome, begins a new
    term.
    """
    epoch_node = await get_or_none(session, CONTROLLER_EPOCH)
    if epoch_node is None:
        with suppress(NodeExistsError):
            await session.commit([Create(CONTROLLER_EPOCH, b"0")])
        epoch_node = await session.get(CONTROLLER_EPOCH)
    holder = await get_or_none(session, CONTROLLER)
    if holder is not None and holder.stat.owner_session != session.session_id:
        return None
    epoch = read_number(CONTROLLER_EPOCH, epoch_node.data) + 1
    version = epoch_node.stat.version
    data = controller_data(broker_id, now_ms)
    claim: Operation = Create(CONTROLLER, data, is_ephemeral=True)
    if holder is not None:
        claim = Write(CONTROLLER, data, holder.stat.version)
    try:
        await session.commit([Write(CONTROLLER_EPOCH, b"%d" % epoch, version), claim])
    except (BadVersionError, NodeExistsError, NoNodeError):
        return None
    return Office(epoch, version + 1)


class _TermLog:
    """The controller's decisions in ZooKeeper: transactions that are committed in their order."""

    def __init__(
        self,
        controller: Controller,
        epoch: int,
        commit: Callable[[Iterable[Unit]], Awaitable[None]],
    ) -> None:
        self._controller = controller
        self._epoch = epoch
        self._commit = commit
        self._queue: deque[Unit] = deque()
        self._committed_count = 0

    @property
    def end_offset(self) -> Offset:
        """The number of all transactions so far."""
        return Offset(self._committed_count + len(self._queue))

    def write(self, records: tuple[MetadataRecord, ...]) -> PublishedChange | None:
        """Queue the transactions of a decision; without records, a check of the term."""
        before = self._controller.image
        after = replay(before, records, Offset(before.end_offset + len(records)))
        self._queue += commits_for(before, after, records, self._epoch) or [[]]
        self._controller.image = after
        return PublishedChange(after, records) if records else None

    def is_committed(self, end_offset: Offset) -> bool:
        """Whether these transactions are in ZooKeeper."""
        return self._committed_count >= end_offset

    async def committed(self, end_offset: Offset) -> None:
        """Commit these transactions; ApiError if the term is over."""
        while not self.is_committed(end_offset):
            await self._commit([self._queue[0]])
            self._queue.popleft()
            self._committed_count += 1


class ControllerTerm:
    """Decides until it is over."""

    def __init__(
        self,
        session: ZooKeeperSession,
        office: Office,
        settings: ControllerSettings,
        clock: Clock,
        cluster_id: str,
    ) -> None:
        self.epoch = office.epoch
        self.is_over = False
        self._session = session
        self._fence = Check(CONTROLLER_EPOCH, office.version)
        self._clock = clock
        self._controller = Controller(ClusterImage(cluster_id), settings)
        self._runtime = DecisionRuntime(
            self._controller,
            _TermLog(self._controller, self.epoch, self._commit),
            self._publish_committed,
        )
        self._feed = MetadataFeed(self.epoch, self._controller.image, clock.now_ms())
        self._publish: Publish | None = None
        self._look_again = asyncio.Event()
        self._office_is_watched = False

    @property
    def feed(self) -> MetadataFeed:
        """The decisions, for other brokers to pull; from `begin` on."""
        return self._feed

    @property
    def image(self) -> ClusterImage:
        """The committed metadata."""
        return self._feed.image

    # -- the beginning and the end --------------------------------------------------------------

    async def begin(self) -> None:
        """Read everything, complete the unfinished work of an earlier term, find the live brokers.

        Raises ZooKeeperError or ApiError NOT_CONTROLLER if the term is over before it has begun,
        UnreadableZnodeError for an invalid node.
        """
        loaded = await load(self._session)
        await self._commit(repairs(loaded))
        await self._commit(await missing_states(self._session, loaded, self.epoch))
        live = await live_brokers(self._session, self._look_again.set)
        brokers = known_brokers(loaded, live)
        records = [*map(registration_record, brokers), *loaded.records]
        end_offset = first_offset(self.epoch) + len(records)
        try:
            self._controller.replay(records, Offset(end_offset))
        except UnreplayableRecordError as error:
            raise UnreadableZnodeError(f"the nodes of topics: {error}") from error
        self._feed = MetadataFeed(self.epoch, self._controller.image, self._clock.now_ms())
        await self.execute(lambda controller: controller.bootstrap())
        await self._look_at_office()
        # Pass the image's own broker objects: identical objects count as unchanged.
        await self._look_at(live)
        await self.execute(elect_where_nobody_leads)

    def activate(self, publish: Publish) -> None:
        """Publish decisions from now on."""
        self._publish = publish

    def end(self, reason: object) -> None:
        """Decide nothing any more."""
        if not self.is_over:
            self.is_over = True
            _log.info("term %d as the controller is over: %s", self.epoch, reason)
            self._feed.close()
            self._look_again.set()

    async def reign(self, rebalance_seconds: float = math.inf) -> None:
        """Follow the coming and going of brokers until the term is over.

        Every now and then the first replicas lead again, wherever they are in sync, if enough of
        them do not.
        """
        loop = asyncio.get_running_loop()
        rebalance_at = loop.time() + rebalance_seconds
        try:
            while not self.is_over:
                if await self._wait_for_news(rebalance_at - loop.time()):
                    await self.look_around()
                else:
                    rebalance_at = loop.time() + rebalance_seconds
                    percentage = self._controller.settings.leader_imbalance_per_broker_percentage
                    await self.execute(partial(Controller.prefer_leaders, percentage=percentage))
        except (ApiError, ZooKeeperError) as error:
            self.end(repr(error))

    async def _wait_for_news(self, seconds: float) -> bool:
        """Wait until there is something to look at; False if the time is up first."""
        try:
            patience = None if seconds == math.inf else max(0.0, seconds)
            async with asyncio.timeout(patience):
                await self._look_again.wait()
        except TimeoutError:
            return False
        self._look_again.clear()
        return True

    # -- brokers --------------------------------------------------------------------------------

    async def look_around(self) -> None:
        """See whether this is still the controller, and which brokers have come or gone."""
        await self._look_at_office()
        await self._look_at(await live_brokers(self._session, self._look_again.set))

    async def _look_at_office(self) -> None:
        if not self._office_is_watched:
            self._office_is_watched = True
            stat = await self._session.exists(CONTROLLER, self._on_office_changed)
            if stat is None or stat.owner_session != self._session.session_id:
                self.end("another broker is the controller")
        self._check_office()

    async def _look_at(self, live: Mapping[BrokerId, LiveBroker]) -> None:
        gone = frozenset(
            broker_id
            for broker_id, broker in self.image.brokers.items()
            if not broker.is_fenced and not is_same_life(broker, live.get(broker_id))
        )
        for broker_id in sorted(gone):
            await self.execute(partial(Controller.fence_broker, broker_id=broker_id, gone=gone))
        for one in live.values():
            await self._see(one)

    def _on_office_changed(self) -> None:
        self._office_is_watched = False
        self._look_again.set()

    async def _see(self, live: LiveBroker) -> None:
        """Record a registration; an earlier one of the same broker is fenced by now."""
        broker_id = live.broker.broker_id
        known = self.image.brokers.get(broker_id)
        if known is None or not is_same_life(known, live):
            self._compare_min_isr(live)
            if live.has_lost_tail:
                await self.execute(lambda controller: controller.forget_tail(broker_id))
            fenced = replace(live.broker, is_fenced=True)
            await self.execute(lambda controller: controller.register_broker(fenced))
            await self.execute(lambda controller: controller.unfence_broker(broker_id))

    def _compare_min_isr(self, live: LiveBroker) -> None:
        """Warn if leaders there count on another number in sync than this controller does."""
        own = self._controller.settings.topic_defaults.min_insync_replicas
        theirs = live.min_insync_replicas
        is_set_for_all = MIN_ISR in self.image.configs.get(EVERY_BROKER, {})
        if theirs not in {None, own} and not is_set_for_all:
            _log.warning(
                "broker %d has %s=%s in its settings, and the controller %d: "
                "let them agree, or set it for all brokers at once",
                live.broker.broker_id,
                MIN_ISR,
                theirs,
                own,
            )

    # -- decisions ------------------------------------------------------------------------------

    async def execute(self, decide: "Decide[T]") -> T:
        """Decide, commit, publish, and return the decision's response.

        ApiErrors of `decide` come through; NOT_CONTROLLER means that the term is over, and that the
        outcome of the decision is unknown. A decision without changes also needs a valid term.
        Cancelling the wait does not take the decision back.
        """
        self._check_office()
        response = self._runtime.decide(decide)
        try:
            await self._runtime.published()
        except ApiError as error:
            self.end(error)
            raise
        return response

    def _publish_committed(self, change: PublishedChange) -> Outcome | None:
        self._feed.add(change.records, change.image, self._clock.now_ms())
        return None if self._publish is None else self._publish(change.image, change.records)

    async def _commit(self, commits: Iterable[Unit]) -> None:
        """Write something down as the controller, or be it no longer."""
        for commit in commits:
            try:
                await self._session.commit([self._fence, *commit])
            except ZooKeeperError as error:
                self.end(repr(error))
            self._check_office()

    def _check_office(self) -> None:
        if self.is_over:
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"term {self.epoch} is over")
