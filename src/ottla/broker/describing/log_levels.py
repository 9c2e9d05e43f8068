"""The levels of this process' loggers, under Kafka's names (KIP-412).

Only Ottla's own loggers are shown: `root` stands for the topmost of them, so that a program with an
embedded broker controls its other loggers. Levels are not kept across a restart. Clients use
IncrementalAlterConfigs and DescribeConfigs, operators also HTTP.
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
    """Return the names of all loggers with a level."""
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
    """Set a logger's level; NOTSET means its parent's level."""
    _logger(name).setLevel(level)
    _log.warning("the level of %s is %s now", name, log_level(name))


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(TOPMOST if name == ROOT else name)
