"""Log levels, looked at and changed while the broker runs."""

import logging
from typing import Final

ROOT: Final = "root"
OFF: Final = "OFF"
_NUMBER_BY_LEVEL: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "CRITICAL": logging.CRITICAL,
    OFF: logging.CRITICAL + 1,
}
LEVELS: Final = tuple(_NUMBER_BY_LEVEL)
"""The words of Python's logging and of Kafka's; none is more than Python has."""


def level_names() -> dict[str, str]:
    """Return the level in effect of every logger that is in use."""
    # Taken at once: other threads may make loggers meanwhile.
    known = list(logging.Logger.manager.loggerDict.items())
    names = sorted(name for name, logger in known if isinstance(logger, logging.Logger))
    return {ROOT: level_of(ROOT), **{name: level_of(name) for name in names}}


def is_logger(name: str) -> bool:
    """Tell whether there is such a logger, or there are loggers below it."""
    return name == ROOT or name in logging.Logger.manager.loggerDict


def change_level(name: str, level: str | None) -> bool:
    """Let a logger tell this and what is worse, or what its parent tells; False if unknown."""
    number = logging.NOTSET if level is None else _NUMBER_BY_LEVEL.get(level.upper())
    if number is None or (number == logging.NOTSET and name == ROOT):
        return False
    _logger(name).setLevel(number)
    return True


def level_of(name: str) -> str:
    """Return the level in effect of a logger that is there."""
    number = _logger(name).getEffectiveLevel()
    return OFF if number > logging.CRITICAL else logging.getLevelName(number)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
