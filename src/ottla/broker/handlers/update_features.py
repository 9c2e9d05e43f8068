"""UpdateFeatures v0-v2: change the levels of the named features, atomically.

An unsupported feature or level is refused with INVALID_UPDATE_VERSION; the message names the
feature and its supported levels. Version 0 only has a flag that allows downgrades.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.machines.controller.features import (
    SAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
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
_FAILED = "The update failed for all features since the following feature had an error"


def _no_quorum() -> int:
    return 0


@dataclass(frozen=True, slots=True)
class UpdateFeaturesHandler:
    """Answers UpdateFeatures."""

    store: MetadataStore
    kraft_version: Callable[[], int] = _no_quorum
    """The level of the quorum; 0 without a quorum."""
    voters: Callable[[], Iterable[int]] = tuple
    """The ids of the quorum's voters; none without a quorum."""

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
        def decide(controller: Controller) -> Decision[MetadataRecord, None]:
            return controller.update_features(
                updates,
                validate_only=validate_only,
                kraft_version=self.kraft_version(),
                voters=self.voters(),
            )

        await self.store.execute(decide)


def _update(key: FeatureUpdateKey, *, has_type: bool) -> FeatureUpdate:
    upgrade_type = SAFE_DOWNGRADE if key.allow_downgrade else UPGRADE
    return FeatureUpdate(
        key.feature, key.max_version_level, key.upgrade_type if has_type else upgrade_type
    )
