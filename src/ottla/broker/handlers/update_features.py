"""UpdateFeatures v0-v2: change the levels of the named features, atomically.

An unsupported feature or level is refused with INVALID_UPDATE_VERSION; the message names the
feature and its supported levels. Version 0 only has a flag that allows downgrades.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.machines.controller.features import (
    SAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    update_features,
)
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
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


@dataclass(frozen=True, slots=True)
class UpdateFeaturesHandler:
    """Answers UpdateFeatures."""

    store: MetadataStore

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
                error_code=error.code, error_message=f"nothing was changed: {error.detail}"
            )
        results = [UpdatableFeatureResult(feature=update.name) for update in updates]
        return UpdateFeaturesResponse(results=results)

    async def _execute(self, updates: Sequence[FeatureUpdate], *, validate_only: bool) -> None:
        def decide(controller: Controller) -> Decision[MetadataRecord, None]:
            decision = update_features(controller.image, updates)
            return Decision((), None) if validate_only else decision

        await self.store.execute(decide)


def _update(key: FeatureUpdateKey, *, has_type: bool) -> FeatureUpdate:
    upgrade_type = SAFE_DOWNGRADE if key.allow_downgrade else UPGRADE
    return FeatureUpdate(
        key.feature, key.max_version_level, key.upgrade_type if has_type else upgrade_type
    )
