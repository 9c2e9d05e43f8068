"""The metadata store of a broker in a cluster with its metadata in ZooKeeper.

    for each session:   register --> +--> win the election --> lead until in doubt ----+
                                     |                                                 |
                                     +--> or follow the controller until it changes ---+

One broker at a time decides (`controller_term`); the others pull its decisions. All of them publish
the same images in the same order, each at its own pace, and none goes back: images with a lower
controller epoch than the latest are refused.

When a session is lost the broker first steps down, and then begins a new session.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from ottla.broker.metadata_store.image_publisher import ImagePublisher, OnChange, Prepare
from ottla.broker.metadata_store.metadata_history import (
    Batches,
    MetadataSource,
    Snapshot,
    image_of,
    next_image,
)
from ottla.broker.metadata_store.zookeeper.controller_term import ControllerTerm, win
from ottla.broker.metadata_store.zookeeper.migration_nodes import (
    MIGRATION,
    MigrationPhase,
    read_migration,
    read_quorum_endpoint,
)
from ottla.broker.metadata_store.zookeeper.registration import (
    RETRY_SECONDS,
    Connect,
    begin_session,
    is_registered,
    pause_after,
    register,
)
from ottla.broker.metadata_store.zookeeper.znode_reads import get_or_none, load_topics
from ottla.broker.metadata_store.zookeeper.znodes import (
    BROKER_IDS,
    CONTROLLER,
    LiveBroker,
    UnreadableZnodeError,
    read_broker,
    read_controller,
)
from ottla.concurrency.first_of import first_of, pause_seconds
from ottla.environment.clock import Clock
from ottla.environment.randomness import Randomness
from ottla.environment.zookeeper import (
    SessionExpiredError,
    SessionState,
    ZooKeeperError,
    ZooKeeperSession,
)
from ottla.machines.controller.machine import Controller
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.difference import records_between
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ZERO_UUID, BrokerId, uuid_to_text
from ottla.runtime.problem_log import ProblemLog
from ottla.wire.protocol_error import ProtocolError

NO_EPOCH: Final = -1
T = TypeVar("T")
_log = logging.getLogger(__name__)


class ForeignClusterError(Exception):
    """ZooKeeper has another cluster's metadata than before: it was emptied."""


class ZooKeeperMetadataStore:
    """Turns requests into committed metadata, if this broker is the controller; else follows it.

    Belongs to one event loop. Call `open` and `run` once.
    """

    def __init__(
        self,
        cluster_id: str,
        session: ZooKeeperSession,
        connect: Connect,
        settings: ControllerSettings,
        source: MetadataSource,
        *,
        clock: Clock,
        session_timeout_ms: int,
        rebalance_seconds: float,
    ) -> None:
        self.cluster_id = cluster_id
        self.broker_epoch = NO_EPOCH
        """The epoch of this broker's registration, as long as it has one."""
        self.controller_epoch = NO_EPOCH
        """The epoch of the controller that made the known decisions."""
        self._term: ControllerTerm | None = None
        self._session = session
        self._connect = connect
        self._settings = settings
        self._source = source
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_seconds = rebalance_seconds
        self._publisher = ImagePublisher(ClusterImage(cluster_id))
        self._publisher.subscribe(self._on_image)
        self._on_session_lost: list[Callable[[], None]] = []
        self._on_doubt: list[Callable[[], None]] = []
        self._is_in_service = asyncio.Event()
        self._has_lost_tail = True
        self.knows_migration = False
        """Whether a migration of this cluster to a quorum began, and maybe was rolled back."""
        self._sure_until_ms = clock.monotonic_ms()

    @classmethod
    async def open(
        cls,
        connect: Connect,
        settings: ControllerSettings,
        source: MetadataSource,
        *,
        clock: Clock,
        randomness: Randomness,
        session_timeout_ms: int,
        rebalance_seconds: float,
    ) -> "ZooKeeperMetadataStore":
        """Begin a session, and read the cluster id, or create a cluster.

        Waits until ZooKeeper responds. Raises UnreadableZnodeError if the id is invalid.
        """
        proposal = uuid_to_text(randomness.uuid())
        session, cluster_id = await begin_session(connect, proposal)
        return cls(
            cluster_id,
            session,
            connect,
            settings,
            source,
            clock=clock,
            session_timeout_ms=session_timeout_ms,
            rebalance_seconds=rebalance_seconds,
        )

    # -- the broker's interface -----------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """The published metadata: the only image that handlers may use."""
        return self._publisher.image

    @property
    def term(self) -> ControllerTerm | None:
        """This broker's own term, while it is the controller, as far as it knows."""
        return None if self._term is None or self._term.is_over else self._term

    @property
    def is_session_confirmed(self) -> bool:
        """Whether the session cannot have expired: no other broker leads our partitions."""
        is_over = self._session.state is SessionState.EXPIRED
        return not is_over and self._clock.monotonic_ms() < self._sure_until_ms

    def subscribe(self, on_change: OnChange) -> None:
        """Call a listener for every image from now on, in order; it must not raise."""
        self._publisher.subscribe(on_change)

    def prepare_by(self, prepare: Prepare) -> None:
        """Call a function before each publication from now on; it must not raise either."""
        self._publisher.prepare_by(prepare)

    def on_session_lost(self, step_down: Callable[[], None]) -> None:
        """Call a function when the session is over, before the next session begins."""
        self._on_session_lost.append(step_down)

    def on_doubt(self, look: Callable[[], None]) -> None:
        """Call a function again and again while the session may have ended."""
        self._on_doubt.append(look)

    async def execute(self, decide: Callable[[Controller], Decision[MetadataRecord, T]]) -> T:
        """Decide, make it durable, call the listeners, and return the decision's response.

        ApiErrors of `decide` come through. NOT_CONTROLLER means that this broker is not the
        controller, or that the outcome of the decision is unknown. Cancelling the wait does not
        take the decision back.
        """
        term = self.term
        if term is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        return await term.execute(decide)

    async def wait_until_in_service(self) -> None:
        """Wait until the controller has recorded this broker, and the image says so."""
        await self._is_in_service.wait()

    async def close(self) -> None:
        """End the session, and with it the registration; `run` has to be cancelled before."""
        self._step_down()
        await self._publisher.close()
        with suppress(ZooKeeperError):
            await self._session.close()

    # -- sessions -------------------------------------------------------------------------------

    async def look_ahead(self) -> ClusterImage:
        """Return the existing topics, for a broker that is not registered yet.

        Waits until ZooKeeper responds. Raises ForeignClusterError if it was emptied meanwhile.
        """
        while True:
            try:
                return await load_topics(self._session, self.cluster_id)
            except SessionExpiredError:
                await self._begin_session()
            except (UnreadableZnodeError, ZooKeeperError) as error:
                await pause_after(error)

    async def run(self, broker: BrokerImage, *, has_lost_tail: bool) -> None:
        """Be a broker of the cluster until cancelled.

        `has_lost_tail`: the machine has restarted with unsynced writes. Raises ApiError if an image
        cannot be published, ForeignClusterError as `look_ahead` does.
        """
        self._has_lost_tail = has_lost_tail
        while True:
            try:
                await self._live(self._session, broker)
            finally:
                self._step_down()
            await self._begin_session()

    async def _begin_session(self) -> None:
        with suppress(ZooKeeperError):
            await self._session.close()
        self._session, cluster_id = await begin_session(self._connect, self.cluster_id)
        if cluster_id != self.cluster_id:
            raise ForeignClusterError(f"{cluster_id} in place of {self.cluster_id}")

    async def _live(self, session: ZooKeeperSession, broker: BrokerImage) -> None:
        """Participate until the session is lost."""
        is_expired = asyncio.Event()

        def on_state(state: SessionState) -> None:
            if state is SessionState.EXPIRED:
                self._step_down()
                is_expired.set()

        session.on_state(on_state)
        if session.state is SessionState.EXPIRED:
            return
        await first_of(
            is_expired.wait(),
            self._take_part(session, broker),
            self._keep_sure(session, broker.broker_id),
            self._tell_doubts(),
            self._publisher.wait_for_failure(),
        )

    async def _keep_sure(self, session: ZooKeeperSession, broker_id: BrokerId) -> None:
        """Check the registration periodically; return when it is gone."""
        is_there = True
        while is_there:
            await pause_seconds(self._session_timeout_ms / 3000)
            if self.broker_epoch != NO_EPOCH:
                with suppress(ZooKeeperError):
                    is_there = await self._confirm_registration(session, broker_id)

    async def _tell_doubts(self) -> None:
        while True:
            left_ms = self._sure_until_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                for look in self._on_doubt:
                    look()
            await pause_seconds(max(left_ms / 1000, RETRY_SECONDS))

    async def _confirm_registration(self, session: ZooKeeperSession, broker_id: BrokerId) -> bool:
        """Renew the lease if the registration exists; return whether it does."""
        asked_at_ms = self._clock.monotonic_ms()
        is_there = await is_registered(session, broker_id)
        if is_there and session.state is not SessionState.EXPIRED:
            self._sure_until_ms = asked_at_ms + self._session_timeout_ms
        return is_there

    def _step_down(self) -> None:
        """Stop being anything that depends on the session."""
        self._sure_until_ms = self._clock.monotonic_ms()
        self._is_in_service.clear()
        if self._term is not None:
            self._term.end("the session is lost")
        if self.broker_epoch != NO_EPOCH:
            self.broker_epoch = NO_EPOCH
            for step_down in self._on_session_lost:
                step_down()

    # -- one session ----------------------------------------------------------------------------

    async def _take_part(self, session: ZooKeeperSession, broker: BrokerImage) -> None:
        """Register; then decide or follow, until the session has expired."""
        while True:
            try:
                await self._check_migration(session)
                if self.broker_epoch == NO_EPOCH:
                    await self._register(session, broker)
                if not await self._reign(session):
                    await self._follow(session)
            except SessionExpiredError:
                return
            except (UnreadableZnodeError, ZooKeeperError) as error:
                await pause_after(error)

    async def _check_migration(self, session: ZooKeeperSession) -> None:
        node = await get_or_none(session, MIGRATION)
        self.knows_migration = node is not None
        if node is not None and read_migration(node.data) is MigrationPhase.FINALIZED:
            raise ForeignClusterError(
                "the migration of this cluster to a quorum of controllers is finalized: start this"
                " broker with process.roles=broker and controller.quorum.bootstrap.servers"
            )

    async def _register(self, session: ZooKeeperSession, broker: BrokerImage) -> None:
        min_insync_replicas = self._settings.topic_defaults.min_insync_replicas
        live = LiveBroker(broker, self._has_lost_tail, min_insync_replicas)
        self.broker_epoch = await register(session, live, self._clock.now_ms())
        await self._confirm_registration(session, broker.broker_id)
        # The controller may have been faster than the response.
        self._on_image(self.image, ())

    async def _reign(self, session: ZooKeeperSession) -> bool:
        """Try to become the controller; if it succeeds, return when that is over."""
        office = await win(session, self._settings.broker_id, self._clock.now_ms())
        if office is None:
            return False
        _log.info("broker %d is the controller, epoch %d", self._settings.broker_id, office.epoch)
        term = ControllerTerm(session, office, self._settings, self._clock, self.cluster_id)
        try:
            await term.begin()
            self._take_over(term.epoch, term.image)
            term.activate(self._publisher.publish)
            self._term = term
            await term.reign(self._rebalance_seconds)
        except ApiError as error:
            if error.code != ErrorCode.NOT_CONTROLLER:
                raise
            await pause_seconds(RETRY_SECONDS)  # it was over before it had begun
        finally:
            self._term = None
            term.end("the broker does not go on with it")
        return True

    async def _follow(self, session: ZooKeeperSession) -> None:
        """Follow the controller until it may have changed."""
        is_changed = asyncio.Event()
        node = await get_or_none(session, CONTROLLER, is_changed.set)
        if node is None or node.stat.owner_session == session.session_id:
            return
        controller_id = read_controller(node.data)
        endpoint = read_quorum_endpoint(node.data)
        if endpoint is not None:
            leader = BrokerImage(BrokerId(controller_id), NO_EPOCH, ZERO_UUID, (endpoint,))
            await first_of(is_changed.wait(), self._pull_from(leader))
            return
        found = await get_or_none(session, f"{BROKER_IDS}/{controller_id}")
        if found is None:  # all brokers are about to notice
            await pause_seconds(RETRY_SECONDS)
            return
        controller = read_broker(BrokerId(controller_id), found.data, found.stat.created_zxid)
        await first_of(is_changed.wait(), self._pull_from(controller.broker))

    async def _pull_from(self, controller: BrokerImage) -> None:
        has_lost_track, problem = False, ProblemLog(_log)
        while True:
            epoch = NO_EPOCH if has_lost_track else self.controller_epoch
            offset = self._publisher.latest.end_offset
            try:
                published = self._taken(await self._source.pull(controller, epoch, offset))
            except (ApiError, OSError) as error:
                # Records that do not follow the present image may be covered by a snapshot.
                has_lost_track = isinstance(error, ProtocolError)
                problem.report(f"no metadata from controller {controller.broker_id}: {error!r}")
                await pause_seconds(RETRY_SECONDS)
            else:
                has_lost_track = False
                await asyncio.shield(published)

    # -- images ---------------------------------------------------------------------------------

    def _taken(self, pulled: Batches | Snapshot) -> "asyncio.Future[ApiError | None]":
        """Apply pulled decisions; ApiError if they are not from the newest controller."""
        if pulled.epoch < self.controller_epoch:
            raise ApiError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"epoch {pulled.epoch}, and {self.controller_epoch} was seen",
            )
        if isinstance(pulled, Snapshot):
            return self._take_over(pulled.epoch, image_of(self.cluster_id, pulled))
        if pulled.epoch > self.controller_epoch:
            raise ApiError(ErrorCode.INVALID_RECORD, "decisions of a term that was not begun")
        image, records = next_image(self._publisher.latest, pulled)
        return self._publisher.publish(image, records)

    def _take_over(self, epoch: int, image: ClusterImage) -> "asyncio.Future[ApiError | None]":
        """Replace the image by one of a new term."""
        latest = self._publisher.latest
        if image.end_offset < latest.end_offset:
            raise ApiError(ErrorCode.INVALID_RECORD, f"{image.end_offset} is behind")
        self.controller_epoch = epoch
        return self._publisher.publish(image, records_between(latest, image))

    def _on_image(self, image: ClusterImage, _: Sequence[MetadataRecord]) -> None:
        own = image.brokers.get(self._settings.broker_id)
        if own is not None and own.broker_epoch == self.broker_epoch and not own.is_fenced:
            # The controller knows that the tail is lost: another report would cost eligibility
            # again.
            self._has_lost_tail = False
            self._is_in_service.set()
