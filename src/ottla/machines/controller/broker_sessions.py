"""Which brokers the active controller has heard from, and when.

    register --> heard, heard, ... --> expired: the controller fences the broker
                                   --> ended: a broker that may stop is fenced at once

Sessions are not in the log: a new active controller begins with a whole session for each broker in
service, because it does not know when its predecessor has heard from them. A fenced broker has no
valid session, so that a new incarnation of it may register at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.metadata.image import BrokerImage, ClusterImage, ZkMigrationState
from ottla.model.identifiers import NO_OFFSET, BrokerId, Offset


@dataclass(slots=True)
class _Session:
    broker_epoch: int
    heard_ms: int
    registered_offset: Offset
    """The broker has seen its registration once its metadata has this offset."""
    metadata_offset: Offset = NO_OFFSET
    """The last offset of the metadata log that the broker has."""
    shutdown_offset: Offset | None = None
    """The other brokers know that the broker leads nothing once they have this offset."""


class BrokerSessions:
    """The sessions of one active controller. Times are of the monotonic clock."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._timeout_ms = session_timeout_ms
        self._session_by_broker: dict[BrokerId, _Session] = {}
        self.in_zookeeper: frozenset[BrokerId] = frozenset()
        """The brokers with a session in ZooKeeper, during a migration: it decides on them."""
        self._began_at = NO_OFFSET
        """The last offset at the beginning, after a migration."""
        self._registered_by_broker: dict[BrokerId, tuple[int, Offset]] = {}
        """The epoch and the offset of each registration since this controller is active."""

    def begin(self, image: ClusterImage, now_ms: int) -> None:
        """Begin as a new active controller: each broker in service has a whole session."""
        has_migrated = image.zk_migration_state != ZkMigrationState.NONE
        self._began_at = Offset(image.end_offset - 1) if has_migrated else NO_OFFSET
        self._registered_by_broker.clear()
        self._session_by_broker = {
            broker.broker_id: _Session(broker.broker_epoch, now_ms, self._registered_offset(broker))
            for broker in image.brokers.values()
            if not broker.is_fenced
        }

    def register(
        self, broker_id: BrokerId, broker_epoch: int, registered_offset: Offset, now_ms: int
    ) -> None:
        """Begin the session of an incarnation, or go on with it."""
        self._registered_by_broker[broker_id] = (broker_epoch, registered_offset)
        session = self._session_by_broker.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            session = _Session(broker_epoch, now_ms, registered_offset)
            self._session_by_broker[broker_id] = session
        session.registered_offset = registered_offset
        session.heard_ms = now_ms

    def heard(self, broker: BrokerImage, metadata_offset: Offset, now_ms: int) -> None:
        """Take note of a heartbeat, and of the last offset of the metadata log that it names."""
        session = self._begun(broker, now_ms)
        session.heard_ms, session.metadata_offset = now_ms, metadata_offset

    def forget(self, broker_id: BrokerId) -> None:
        """End a session: the broker is fenced, or unregistered."""
        self._session_by_broker.pop(broker_id, None)

    # -- expiry ---------------------------------------------------------------------------------

    def is_valid(self, broker: BrokerImage, now_ms: int) -> bool:
        """Whether a registered broker is in service, and was heard within its session."""
        session = self._session(broker)
        is_heard = session is not None and now_ms <= session.heard_ms + self._timeout_ms
        return is_heard and not broker.is_fenced

    def expired(self, brokers: Iterable[BrokerImage], now_ms: int) -> list[BrokerId]:
        """Return the brokers in service with sessions that are over, beginning with the oldest."""
        over = [
            broker
            for broker in brokers
            if not broker.is_fenced
            and not broker.is_in_zookeeper
            and not self.is_valid(broker, now_ms)
        ]
        return sorted((broker.broker_id for broker in over), key=self._heard_ms)

    def next_expiry_ms(self, brokers: Iterable[BrokerImage]) -> int | None:
        """Return when to look for expired sessions; None if no broker is in service."""
        times = [
            self._heard_ms(one.broker_id)
            for one in brokers
            if not one.is_fenced and not one.is_in_zookeeper
        ]
        return min(times) + self._timeout_ms + 1 if times else None

    # -- offsets --------------------------------------------------------------------------------

    def has_seen_registration(self, broker: BrokerImage, metadata_offset: Offset) -> bool:
        """Whether a broker with this offset knows of its own registration."""
        session = self._session(broker)
        wanted = session.registered_offset if session else self._registered_offset(broker)
        return metadata_offset >= wanted

    def begin_shutdown(self, broker: BrokerImage, offset: Offset, now_ms: int) -> Offset:
        """Set the offset that ends a controlled shutdown, unless it is set; return it.

        It does not move with later heartbeats: a busy cluster would never let the broker stop.
        """
        session = self._begun(broker, now_ms)
        if session.shutdown_offset is None:
            session.shutdown_offset = offset
        return session.shutdown_offset

    def lowest_active_offset(self, brokers: Iterable[BrokerImage]) -> Offset | None:
        """Return the offset that every active broker has reached; None if none is active."""
        offsets = [
            session.metadata_offset
            for broker in brokers
            if broker.is_active and (session := self._session(broker)) is not None
        ]
        return min(offsets, default=None)

    def _heard_ms(self, broker_id: BrokerId) -> int:
        session = self._session_by_broker.get(broker_id)
        return session.heard_ms if session is not None else -self._timeout_ms

    def _session(self, broker: BrokerImage) -> _Session | None:
        """Return the session of this incarnation."""
        session = self._session_by_broker.get(broker.broker_id)
        is_its_own = session is not None and session.broker_epoch == broker.broker_epoch
        return session if is_its_own else None

    def _begun(self, broker: BrokerImage, now_ms: int) -> _Session:
        """Return the session of this incarnation, which begins if there is none."""
        session = self._session(broker)
        if session is None:
            session = _Session(broker.broker_epoch, now_ms, self._registered_offset(broker))
            self._session_by_broker[broker.broker_id] = session
        return session

    def _registered_offset(self, broker: BrokerImage) -> Offset:
        """Return the offset of a registration, which is its epoch, unless it was in a migration.

        Then it is the end of the log at the beginning of this controller's office, or earlier.
        """
        epoch, offset = self._registered_by_broker.get(broker.broker_id, (None, NO_OFFSET))
        if epoch == broker.broker_epoch:
            return offset
        return Offset(broker.broker_epoch) if self._began_at == NO_OFFSET else self._began_at
