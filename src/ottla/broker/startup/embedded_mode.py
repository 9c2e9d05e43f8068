"""Metadata on the broker's own disk: it is the only broker, and its own controller."""

import asyncio
import logging
from concurrent.futures import Executor

from ottla.broker.controller.controller_client import ActiveController
from ottla.broker.controller.metadata_propagation import nobody
from ottla.broker.handlers import describe_quorum
from ottla.broker.hosting.metadata_applier import MetadataApplier
from ottla.broker.metadata_store.embedded.store import EmbeddedMetadataStore
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.routes import Route, Routes
from ottla.broker.startup.environment import Environment
from ottla.environment.clock import Clock
from ottla.machines.controller.settings import ControllerSettings
from ottla.metadata.image import BrokerImage
from ottla.model.api_error import ApiError
from ottla.model.identifiers import BrokerId
from ottla.model.settings.broker_config import BrokerConfig
from ottla.storage.log_dirs.log_dirs import LogDirs
from ottla.wire.api_key import ApiKey

_log = logging.getLogger(__name__)


class Embedded:
    """The broker decides itself, by a store that has all metadata from the beginning."""

    is_alone = True
    kraft_version = 0
    metadata_fetch = None
    spread = staticmethod(nobody)
    may_leave_cleanly = True

    def __init__(
        self,
        node_id: BrokerId,
        store: MetadataStore,
        directory_ids: tuple[bytes, ...],
        clock: Clock,
    ) -> None:
        self.store = store
        self._clock = clock
        self.directory_ids = directory_ids
        self.broker_epoch = -1
        self.controller = ActiveController(node_id, lambda: self.broker_epoch, store, clock)
        self._follower: MetadataApplier | None = None

    @classmethod
    def open(
        cls,
        config: BrokerConfig,
        environment: Environment,
        threads: Executor,
        log_dirs: LogDirs,
    ) -> "Embedded":
        """Open the metadata log in the first of the log dirs; OSError if that has failed."""
        first = log_dirs.dirs[0]

        def fail(path: str, error: OSError) -> None:
            log_dirs.fail(path, error)
            if path == first.path:
                why = f"the metadata is in {path}, which cannot be used: {error}"
                raise OSError(error.errno, why) from error

        if first.failure is not None:
            fail(first.path, first.failure)
        store = EmbeddedMetadataStore.open(
            environment.disk,
            log_dirs.online_paths,
            ControllerSettings.from_config(config),
            clock=environment.clock,
            randomness=environment.randomness,
            threads=threads,
            on_failed=fail,
        )
        return cls(config.node_id, store, store.identity.directory_ids, environment.clock)

    async def follow_with(self, follower: MetadataApplier) -> None:
        """Open every log, and let it lead: all metadata is here."""
        self._follower = follower
        await follower.open_all(self.store.image)
        self.store.prepare_by(follower.prepare)
        self.store.subscribe(follower.on_change)

    async def register(self, broker: BrokerImage) -> None:
        """Register as the only broker of the cluster."""
        assert self._follower is not None
        self.broker_epoch = await self.store.execute(
            lambda controller: controller.register_broker(broker)
        )
        self._follower.registered()

    def has_valid_lease(self) -> bool:
        """Return True: no other broker can lead."""
        return True

    def routes(self, here: Routes) -> dict[int, Route]:
        """Answer everything here; the broker is a quorum of one."""
        if not isinstance(self.store, EmbeddedMetadataStore):
            return dict(here)
        quorum = describe_quorum.DescribeQuorumHandler(self.store, self._clock)
        described = Route(describe_quorum.VERSIONS, quorum.handle)
        return {**here, ApiKey.DESCRIBE_QUORUM: described}

    async def serve_until(self, stopping: asyncio.Event) -> None:
        """Wait until the broker is to stop."""
        await stopping.wait()

    async def depart(self) -> None:
        """Go: there are no others."""

    async def close(self) -> None:
        """Close the metadata log; all others are to be closed, too, if its disk has failed."""
        try:
            await self.store.close()
        except (ApiError, OSError) as error:
            _log.error("the metadata log is not closed: %s", error)
