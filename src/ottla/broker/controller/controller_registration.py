"""Registers a controller with the active controller, so that its addresses are known (KIP-919)."""

import logging
from collections.abc import Sequence
from typing import Final

from ottla.broker.controller.controller_connection import ChannelToController
from ottla.broker.metadata_store.store import MetadataStore
from ottla.concurrency.first_of import pause_seconds
from ottla.machines.controller.features import SUPPORTED_LEVELS
from ottla.metadata.metadata_version import CONTROLLER_REGISTRATIONS_SINCE
from ottla.model.api_error import ApiError
from ottla.model.identifiers import BrokerId
from ottla.model.settings.listeners import Listener
from ottla.runtime.problem_log import ProblemLog
from ottla.wire.messages import controller_registration as wire
from ottla.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

VERSION: Final = 0
TIMEOUT_MS: Final = 5000
LOOK_SECONDS: Final = 1.0
RETRY_MS: Final = 200
_PLAINTEXT: Final = 0
_log = logging.getLogger(__name__)


class ControllerRegistration:
    """Sees to it that the metadata has this incarnation of a controller."""

    def __init__(
        self,
        node_id: BrokerId,
        incarnation_id: bytes,
        advertised: Sequence[Listener],
        store: MetadataStore,
        channel: ChannelToController,
        *,
        is_zk_migration_ready: bool,
    ) -> None:
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._advertised = advertised
        self._store = store
        self._channel = channel
        self._is_zk_migration_ready = is_zk_migration_ready

    async def run(self) -> None:
        """Register whenever the metadata has another incarnation, until cancelled."""
        problem = ProblemLog(_log)
        while True:
            if self._is_known():
                await pause_seconds(LOOK_SECONDS)
                continue
            await self._channel.wait_for_news(RETRY_MS)
            try:
                response = await self._channel.ask(
                    self._request(),
                    VERSION,
                    ControllerRegistrationResponse,
                    timeout_ms=TIMEOUT_MS,
                )
            except (ApiError, OSError) as error:
                problem.report(f"this controller is not registered yet: {error!r}")
            else:
                if response.error_code:
                    problem.report(
                        f"this controller is not registered yet: error {response.error_code}"
                    )

    def _is_known(self) -> bool:
        """Return whether there is nothing to do: registered, or the cluster has no such records."""
        image = self._store.image
        known = image.controllers.get(self._node_id)
        return image.metadata_version < CONTROLLER_REGISTRATIONS_SINCE or (
            known is not None and known.incarnation_id == self._incarnation_id
        )

    def _request(self) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=self._node_id,
            incarnation_id=self._incarnation_id,
            zk_migration_ready=self._is_zk_migration_ready,
            listeners=[
                wire.Listener(
                    name=one.name, host=one.host, port=one.port, security_protocol=_PLAINTEXT
                )
                for one in self._advertised
            ],
            features=[
                wire.Feature(name=name, min_supported_version=first, max_supported_version=last)
                for name, (first, last) in SUPPORTED_LEVELS.items()
            ],
        )
