"""IncrementalAlterConfigs v0-v1: change single settings, or only check that it could be done.

Each resource changes as a whole or not at all, and has its own error. The levels of loggers are
changed here and now (KIP-412); everything else is the controller's.
"""

import logging
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Final

from ottla.broker.describing.log_levels import LEVEL_BY_NAME, ROOT, logger_names, set_log_level
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.machines.controller.configs import ConfigOutcome
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId
from ottla.model.settings.settings import ConfigOperation, nearest_to, shown
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

VERSIONS = range(2)
_BROKER_LOGGER: Final = 8


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigsHandler:
    """Answers IncrementalAlterConfigs."""

    store: MetadataStore
    node_id: BrokerId

    async def handle(
        self, _context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        """Respond in the order of the request; the changes are effective by then."""
        kept = [one for one in request.resources if one.resource_type != _BROKER_LOGGER]
        loggers = [one for one in request.resources if one.resource_type == _BROKER_LOGGER]
        outcomes = iter(await self._alter_kept(kept, validate_only=request.validate_only))
        altered = iter(self._alter_loggers(loggers, validate_only=request.validate_only))
        return IncrementalAlterConfigsResponse(
            responses=[
                _response(next(altered if one.resource_type == _BROKER_LOGGER else outcomes))
                for one in request.resources
            ]
        )

    async def _alter_kept(
        self, resources: list[AlterConfigsResource], *, validate_only: bool
    ) -> list[ConfigOutcome]:
        try:
            return await self.store.execute(
                lambda controller: controller.incremental_alter_configs(
                    resources, validate_only=validate_only
                )
            )
        except ApiError as error:  # of the metadata log, which concerns them all
            return [ConfigOutcome(one.resource_type, one.resource_name, error) for one in resources]

    def _alter_loggers(
        self, resources: list[AlterConfigsResource], *, validate_only: bool
    ) -> list[ConfigOutcome]:
        outcomes = []
        for one in resources:
            error = None
            try:
                self._check_name(one.resource_name, is_once=len(resources) == 1)
                _alter_log_levels(one.configs, validate_only=validate_only)
            except ApiError as raised:
                error = raised
            outcomes.append(ConfigOutcome(one.resource_type, one.resource_name, error))
        return outcomes

    def _check_name(self, name: str, *, is_once: bool) -> None:
        if not is_once:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the loggers of one broker, and only once")
        if name != str(self.node_id):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {self.node_id}: the loggers of another are altered there",
            )


def _alter_log_levels(configs: Sequence[AlterableConfig], *, validate_only: bool) -> None:
    """Set levels, or delete them so that a parent's level counts; all of them or none.

    ApiError: INVALID_CONFIG for an unknown name or level, INVALID_REQUEST for an operation that
    levels do not have.
    """
    names = logger_names()
    if len({config.name for config in configs}) != len(configs):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a logger is named more than once")
    level_by_name = {config.name: _level(config, names) for config in configs}
    if not validate_only:
        for name, level in level_by_name.items():
            set_log_level(name, level)


def _level(config: AlterableConfig, names: Set[str]) -> int:
    if config.config_operation not in {ConfigOperation.SET, ConfigOperation.DELETE}:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the level of a logger can be set or deleted")
    if config.name not in names:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"no logger is called {shown(config.name)}{nearest_to(config.name, names)}",
        )
    if config.config_operation == ConfigOperation.DELETE:
        if config.name == ROOT:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the level of root can only be set")
        return logging.NOTSET
    level = LEVEL_BY_NAME.get(config.value or "")
    if level is None:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"the level of {config.name} cannot be {shown(config.value or '')}:"
            f" it must be one of {', '.join(LEVEL_BY_NAME)}",
        )
    return level


def _response(outcome: ConfigOutcome) -> AlterConfigsResourceResponse:
    error = outcome.error
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.detail,
        resource_type=outcome.resource_type,
        resource_name=outcome.resource_name,
    )
