"""A broker's life in a cluster with a quorum of controllers: registration, heartbeats, departure.

    register --> heartbeats: fenced --> in service --> controlled shutdown --> may stop
                                 ^          |
                                 +----------+ silent for a session, as the controller sees it

The controller fences a broker that it has not heard for a session. The broker has a lease: it acts
as a leader only until a session has passed since it sent the last heartbeat that was answered.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from ottla.broker.controller.controller_connection import ChannelToController
from ottla.concurrency.first_of import pause_seconds
from ottla.environment.clock import Clock
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import BrokerRegistrationChangeRecord, MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, Offset
from ottla.model.settings.broker_config import BrokerConfig
from ottla.rpc.errors import check
from ottla.runtime.problem_log import ProblemLog
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

REGISTRATION_VERSION: Final = 4
HEARTBEAT_VERSION: Final = 1
NOT_REGISTERED: Final = -1
RETRY_MS: Final = 50
SHUTDOWN_RETRY_MS: Final = 50
DOUBT_SECONDS: Final = 0.2
_PASSING: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""A registration that is refused with one of these is tried again."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LifecycleSettings:
    """Kafka's settings of the same names."""

    heartbeat_interval_ms: int
    session_timeout_ms: int
    initial_registration_timeout_ms: int

    @classmethod
    def from_config(cls, config: BrokerConfig) -> Self:
        """Return the settings of a configuration."""
        return cls(
            config.broker_heartbeat_interval_ms,
            config.broker_session_timeout_ms,
            config.initial_broker_registration_timeout_ms,
        )


class BrokerLifecycle:
    """Registers a broker with the active controller, and keeps it registered.

    Belongs to one event loop. Call `register`, and then run `keep_alive` until the broker is gone.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        channel: ChannelToController,
        clock: Clock,
        settings: LifecycleSettings,
        published_offset: Callable[[], Offset],
        on_doubt: Callable[[], None],
    ) -> None:
        """`published_offset` is the last offset of the metadata log that the broker has."""
        self.broker_epoch = NOT_REGISTERED
        self.is_fenced = True
        """Whether the broker is out of service, by the last answer of a controller."""
        self._broker_id = broker_id
        self._channel = channel
        self._clock = clock
        self._settings = settings
        self._published_offset = published_offset
        self._on_doubt = on_doubt
        self._sure_until_ms = clock.monotonic_ms()
        self._wants_shutdown = False
        self._may_stop = False

    def has_valid_lease(self) -> bool:
        """Return whether no controller can have fenced this broker for its silence."""
        return self._clock.monotonic_ms() < self._sure_until_ms

    # -- registration ---------------------------------------------------------------------------

    async def register(self, request: BrokerRegistrationRequest) -> None:
        """Register; ApiError if the controller refuses, or if none answers in time.

        An earlier incarnation that was killed is in the way until its session expires.
        """
        deadline_ms = self._clock.monotonic_ms() + self._settings.initial_registration_timeout_ms
        problem = ProblemLog(_log, logging.WARNING)
        while True:
            try:
                self.broker_epoch = await self._register_once(request)
            except OSError as error:
                code, reason = ErrorCode.NOT_CONTROLLER, repr(error)
            except ApiError as error:
                code, reason = error.code, str(error)
            else:
                _log.info("registered with epoch %d", self.broker_epoch)
                return
            if code not in _PASSING or self._clock.monotonic_ms() >= deadline_ms:
                raise ApiError(code, f"no controller registers this broker: {reason}")
            if code is not ErrorCode.NOT_CONTROLLER:
                problem.report(f"not registered yet: {reason}")
            await self._channel.wait_for_news(RETRY_MS)

    async def _register_once(self, request: BrokerRegistrationRequest) -> int:
        response = await self._channel.ask(
            request,
            REGISTRATION_VERSION,
            BrokerRegistrationResponse,
            timeout_ms=self._settings.session_timeout_ms,
        )
        check(response.error_code, "the active controller refuses the registration")
        return response.broker_epoch

    # -- heartbeats -----------------------------------------------------------------------------

    async def keep_alive(self) -> None:
        """Send heartbeats until cancelled."""
        problem = ProblemLog(_log, logging.WARNING)
        while True:
            try:
                await self._beat()
            except (ApiError, OSError) as error:
                problem.report(f"the controller does not answer heartbeats: {error!r}")
                await self._channel.wait_for_news(RETRY_MS)
            else:
                problem.is_over("the controller answers heartbeats again")
                await self._channel.wait_for_news(self._interval_ms)

    def hurry(self) -> None:
        """Send the next heartbeat at once."""
        self._channel.look_again()

    def on_change(self, _image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Tell the controller at once of an image in which another broker hands over.

        That broker may stop when the others know their leaderships, and each tells its offset only
        with a heartbeat.
        """
        if any(
            isinstance(record, BrokerRegistrationChangeRecord) and record.in_controlled_shutdown
            for record in records
        ):
            self.hurry()

    async def watch_lease(self) -> None:
        """Report, again and again, that the lease has expired."""
        while True:
            left_ms = self._sure_until_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                self._on_doubt()
            await pause_seconds(max(left_ms / 1000, DOUBT_SECONDS))

    @property
    def _interval_ms(self) -> int:
        if self._wants_shutdown:
            return SHUTDOWN_RETRY_MS
        # A broker that is out of service asks often: its next image may end that.
        return RETRY_MS if self.is_fenced else self._settings.heartbeat_interval_ms

    async def _beat(self) -> None:
        sent_ms = self._clock.monotonic_ms()
        request = BrokerHeartbeatRequest(
            broker_id=self._broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._published_offset(),
            want_fence=False,
            want_shut_down=self._wants_shutdown,
        )
        response = await self._channel.ask(
            request,
            HEARTBEAT_VERSION,
            BrokerHeartbeatResponse,
            timeout_ms=self._settings.session_timeout_ms,
        )
        check(response.error_code, "the active controller refuses the heartbeat")
        self.is_fenced = response.is_fenced
        self._may_stop = response.should_shut_down
        if not response.is_fenced:
            self._sure_until_ms = sent_ms + self._settings.session_timeout_ms

    # -- departure ------------------------------------------------------------------------------

    async def depart(self) -> None:
        """Return when the controller says that other brokers lead, and know it.

        `keep_alive` must run. Cancel this to stop without.
        """
        self._wants_shutdown = True
        self.hurry()
        while not self._may_stop:
            await pause_seconds(SHUTDOWN_RETRY_MS / 1000)
