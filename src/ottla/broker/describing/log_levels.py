"""The levels of this process's loggers, under Kafka's names (KIP-412).

Only Ottla's own loggers are shown: `root` stands for the topmost of them, so that whoever runs a
broker inside of a program keeps the say over the rest. Nothing is remembered beyond a restart.
Clients ask for them by IncrementalAlterConfigs and DescribeConfigs, operators also by HTTP.
"""

import logging
from typing import Final

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


def logger_names() -> set[str]:
    """Return the names of all loggers whose levels can be asked for."""
    known = list(logging.Logger.manager.loggerDict)  # at once: other threads may make loggers
    return {ROOT, TOPMOST} | {name for name in known if name.startswith(TOPMOST + ".")}


def log_levels() -> dict[str, str]:
    """Return every logger by name, with the level that it goes by."""
    return {name: log_level(name) for name in sorted(logger_names())}


def log_level(name: str) -> str:
    """Return the name of the level that a logger goes by, or of the next above it that has one."""
    level = _logger(name).getEffectiveLevel()
    return next((known for known, value in LEVEL_BY_NAME.items() if value >= level), "FATAL")


def set_log_level(name: str, level: int) -> None:
    """Have a logger tell this and what is worse; NOTSET: what its parent tells."""
    _logger(name).setLevel(level)
    _log.warning("the level of %s is %s now", name, log_level(name))


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(TOPMOST if name == ROOT else name)
