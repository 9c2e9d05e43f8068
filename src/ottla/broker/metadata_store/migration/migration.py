"""A controller's terms in ZooKeeper, during a migration from there.

An active controller begins a term before it decides anything. It needs both offices, in the quorum
and in ZooKeeper, and stops deciding when it loses either.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from ottla.broker.metadata_store.migration.migration_term import MigrationTerm
from ottla.broker.metadata_store.migration.zookeeper_office import (
    Claim,
    MigrationRefusedError,
    take_office,
)
from ottla.broker.metadata_store.zookeeper.znodes import UnreadableZnodeError
from ottla.concurrency.first_of import pause_seconds
from ottla.environment.clock import Clock
from ottla.environment.zookeeper import ZooKeeperError, ZooKeeperSession
from ottla.metadata.image import ClusterImage, ZkMigrationState
from ottla.metadata.metadata_version import METADATA_VERSION_FEATURE
from ottla.model.identifiers import BrokerId, LeaderEpoch
from ottla.runtime.problem_log import ProblemLog

RETRY_SECONDS: Final = 0.2
_log = logging.getLogger(__name__)


class Migration:
    """Belongs to one event loop."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[ZooKeeperSession]],
        hosts: str,
        cluster_id: str,
        node_id: BrokerId,
        endpoint: tuple[str, int],
        clock: Clock,
    ) -> None:
        """Brokers with their metadata in ZooKeeper reach this controller at the endpoint."""
        self._connect = connect
        self._hosts = hosts
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._endpoint = endpoint
        self._clock = clock
        self.term: MigrationTerm | None = None
        """The term of this controller, while it is active."""

    def is_due(self, image: ClusterImage) -> bool:
        """Return whether a controller with this image needs the office in ZooKeeper, too.

        MigrationRefusedError if the log has metadata that does not come from ZooKeeper.
        """
        if image.zk_migration_state == ZkMigrationState.POST_MIGRATION:
            return False
        is_empty = METADATA_VERSION_FEATURE not in image.level_by_feature
        if image.zk_migration_state == ZkMigrationState.NONE and not is_empty:
            raise MigrationRefusedError(
                "this quorum has metadata of its own, and none from ZooKeeper: a migration needs"
                " newly formatted controllers; without one, remove"
                " zookeeper.metadata.migration.enable and zookeeper.connect from the settings"
            )
        return True

    async def begin_term(self, epoch: LeaderEpoch, image: ClusterImage) -> MigrationTerm:
        """Take the office in ZooKeeper, and read everything there; wait until that succeeds.

        MigrationRefusedError if this quorum may not have the office.
        """
        has_copy = image.zk_migration_state == ZkMigrationState.MIGRATION
        claim = Claim(
            self._hosts, self._cluster_id, self._node_id, epoch, self._endpoint, has_copy=has_copy
        )
        problem = ProblemLog(_log, logging.WARNING)
        while True:
            session = None
            try:
                session = await self._connect()
                office = await take_office(session, claim, self._clock.now_ms())
                term = await MigrationTerm.begin(office, self._clock)
            except BaseException as error:
                if session is not None:
                    await _close(session)
                if not isinstance(error, UnreadableZnodeError | ZooKeeperError):
                    raise
                problem.report(f"this controller waits for the office in ZooKeeper: {error!r}")
                await pause_seconds(RETRY_SECONDS)
            else:
                problem.is_over("this controller has the office in ZooKeeper")
                _log.info(
                    "node %d is the controller in ZooKeeper, epoch %d", self._node_id, office.epoch
                )
                self.term = term
                return term

    async def end_term(self, term: MigrationTerm) -> None:
        """Let another controller go on. `/controller` stays: no broker is to become one."""
        term.close()
        if self.term is term:
            self.term = None
        await _close(term.office.session)


async def _close(session: ZooKeeperSession) -> None:
    with suppress(ZooKeeperError):
        await session.close()
