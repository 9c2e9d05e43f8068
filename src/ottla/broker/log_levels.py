"""The levels of this process's loggers, read and altered under Kafka's names (KIP-412).

Only Ottla's own loggers are shown: `root` stands for the topmost of them, so that whoever runs a
broker inside of a program keeps the say over the rest. Nothing is remembered beyond a restart.
"""

import logging
from collections.abc import Sequence
from typing import Final

from ottla.machines.controller.configs import ConfigOperation
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.settings import nearest_to, shown
from ottla.wire.messages.incremental_alter_configs import AlterableConfig

TOPMOST: Final = "ottla"
ROOT: Final = "root"
LEVEL_BY_NAME: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_log = logging.getLogger(__name__)


def log_levels() -> dict[str, str]:
    """Return every logger by name, with the level that it goes by."""
    return {name: _shown_level(name) for name in sorted(_logger_names())}


def alter_log_levels(configs: Sequence[AlterableConfig], *, validate_only: bool) -> None:
    """Set levels, or delete them so that those further up count; all of them or none.

    ApiError says what is wrong: INVALID_CONFIG for a name or a level that does not exist,
    INVALID_REQUEST for what cannot be done to a level.
    """
    names = _logger_names()
    if len({config.name for config in configs}) != len(configs):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a logger is named more than once")
    level_by_name = {config.name: _level(config, names) for config in configs}
    if validate_only:
        return
    for name, level in level_by_name.items():
        _logger(name).setLevel(level)
        _log.warning("the level of %s is %s now", name, _shown_level(name))


def _level(config: AlterableConfig, names: set[str]) -> int:
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


def _logger_names() -> set[str]:
    known = logging.Logger.manager.loggerDict
    return {ROOT, TOPMOST} | {name for name in known if name.startswith(TOPMOST + ".")}


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(TOPMOST if name == ROOT else name)


def _shown_level(name: str) -> str:
    """Return the name of the level, or of the next below it that has one."""
    level = _logger(name).getEffectiveLevel()
    return next((known for known, value in LEVEL_BY_NAME.items() if value >= level), "FATAL")
