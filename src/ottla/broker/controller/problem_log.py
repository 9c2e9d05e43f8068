"""Logs a problem that is tried again every few milliseconds once, and that it is over."""

import logging


class ProblemLog:
    """What is wrong with one thing, as far as the log has it.

    The first report is logged at the given level. Those that follow, until the problem is over,
    are logged at DEBUG.
    """

    def __init__(self, logger: logging.Logger, level: int = logging.INFO) -> None:
        self._log = logger
        self._level = level
        self._is_known = False

    def report(self, problem: str) -> None:
        """Note that something has failed."""
        self._log.log(logging.DEBUG if self._is_known else self._level, "%s", problem)
        self._is_known = True

    def is_over(self, news: str) -> None:
        """Note that it works; nothing is logged unless a problem was."""
        if self._is_known:
            self._log.log(self._level, "%s", news)
            self._is_known = False
