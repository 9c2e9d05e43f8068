"""Chooses between two commit paths: direct, in the caller's thread, or through the client's thread.

The direct path is faster, with one exception. A Kafka broker delays a batch by 20 ms if it arrives
before the markers of the last transaction are written (KIP-890). A slightly faster commit can
therefore cause this delay every time. A single slow commit proves nothing, because a busy broker is
slow as well. So after a slow direct commit both paths are measured.
"""

from collections import deque
from statistics import fmean
from typing import Final

LATE_MS: Final = 15
"""A direct commit that takes longer starts a trial of the other path."""
TRIED: Final = 50
"""The number of commits on each path in a trial."""
KEPT: Final = 1000
"""The number of commits on the chosen path before the next trial is allowed."""
MUCH: Final = 0.6
"""The client's path is chosen below this fraction of the direct time; above it may be noise."""


class CommitWays:
    """Compares the paths by their mean time. One commit at a time, in any thread."""

    def __init__(self) -> None:
        self.is_short = True
        """Whether the next commit uses the direct path."""
        self._short_ms: deque[float] = deque(maxlen=TRIED)
        self._long_ms: deque[float] = deque(maxlen=TRIED)
        self._is_trial = False
        self._left = TRIED
        """The number of commits before the path can change."""

    def took(self, took_ms: float) -> None:
        """Record the time of a commit that used the current path from beginning to end."""
        (self._short_ms if self.is_short else self._long_ms).append(took_ms)
        self._left -= 1
        if self._left > 0:
            return
        if self._is_trial:
            self._choose()
        elif not self.is_short or took_ms > LATE_MS:
            self._try_other()

    def _try_other(self) -> None:
        self.is_short = not self.is_short  # first: after Ctrl-C here no trial must begin
        self._left = TRIED
        self._is_trial = True

    def _choose(self) -> None:
        self._is_trial = False
        self._left = KEPT
        self.is_short = fmean(self._long_ms) >= MUCH * fmean(self._short_ms)
