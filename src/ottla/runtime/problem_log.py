"""Logs a problem that is tried again every few milliseconds once, and that it is over."""

import logging


class ProblemLog:
    """Logs a recurring problem once.

    The first report is logged at the given level. Later ones are logged at DEBUG, until the problem
    is over.
    """

    def __init__(self, logger: logging.Logger, level: int = logging.INFO) -> None:
        self._log = logger
        self._level = level
        self._is_known = False

    def report(self, problem: str) -> None:
        """Record that something has failed."""
        self._log.log(logging.DEBUG if self._is_known else self._level, "%s", problem)
        self._is_known = True

    def is_over(self, news: str) -> None:
        """Record a success; it is logged only if a problem was."""
        if self._is_known:
            self._log.log(self._level, "%s", news)
            self._is_known = False
