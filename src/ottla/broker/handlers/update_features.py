"""UpdateFeatures v0-v2: change the levels of the named features, atomically.

An unsupported feature or level is refused with INVALID_UPDATE_VERSION; the message names the
feature and its supported levels. Version 0 only has a flag that allows downgrades.

kraft.version is no record of the metadata but a control record of the log (KIP-853). It is checked
first and raised last: if the leadership ends in between, the other levels have changed, and the
same request may be sent again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.quorum.metadata_replica import MetadataReplica
from ottla.broker.requests.request_context import RequestContext
from ottla.machines.controller.features import (
    SAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
)
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.metadata_version import KRAFT_VERSION_FEATURE
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

VERSIONS = range(3)
_TYPES_SINCE = 1
_FAILED = "The update failed for all features since the following feature had an error"


@dataclass(frozen=True, slots=True)
class UpdateFeaturesHandler:
    """Answers UpdateFeatures."""

    store: MetadataStore
    replica: MetadataReplica | None = None
    """This node's replica of the metadata log; None without a quorum."""

    async def handle(
        self, context: RequestContext, request: UpdateFeaturesRequest
    ) -> UpdateFeaturesResponse:
        """Let the controller decide, or only validate."""
        has_types = context.api_version >= _TYPES_SINCE
        updates = [_update(key, has_type=has_types) for key in request.feature_updates]
        try:
            await self._execute(updates, validate_only=request.validate_only)
        except ApiError as error:
            return UpdateFeaturesResponse(
                error_code=error.code, error_message=f"{_FAILED}: {error.detail}"
            )
        results = [UpdatableFeatureResult(feature=update.name) for update in updates]
        return UpdateFeaturesResponse(results=results)

    async def _execute(self, updates: Sequence[FeatureUpdate], *, validate_only: bool) -> None:
        replica = self.replica
        kraft_version = None if replica is None else replica.kraft_version
        voters = () if replica is None else tuple(key.id for key in replica.voters.keys)

        def decide(controller: Controller) -> Decision[MetadataRecord, None]:
            return controller.update_features(
                updates, validate_only=validate_only, kraft_version=kraft_version, voters=voters
            )

        wanted = next((one.level for one in updates if one.name == KRAFT_VERSION_FEATURE), None)
        if replica is None or wanted in {None, kraft_version}:
            await self.store.execute(decide)
            return
        assert wanted is not None, "only a level differs from the level of the quorum"
        replica.upgrade_kraft_version(wanted, is_validated_only=True)
        await self.store.execute(decide)
        if not validate_only:
            replica.upgrade_kraft_version(wanted, is_validated_only=False)
            # A decision without records is answered once everything before it is committed.
            await self.store.execute(lambda _: Decision((), None))


def _update(key: FeatureUpdateKey, *, has_type: bool) -> FeatureUpdate:
    upgrade_type = SAFE_DOWNGRADE if key.allow_downgrade else UPGRADE
    return FeatureUpdate(
        key.feature, key.max_version_level, key.upgrade_type if has_type else upgrade_type
    )
