"""Which way commits go: the short one, in the caller's thread, or the long one, in the client's.

The short one takes less time, but for one case. A broker of Kafka's that gets a batch before the
markers of the last transaction are written lets it wait for 20 ms (KIP-890): who commits a fraction
of a millisecond sooner loses more than that, again and again. A single commit does not tell, for a
broker that has much to do is late as well. So when short ones are late both ways are tried.
"""

from collections import deque
from statistics import fmean
from typing import Final

LATE_MS: Final = 15
"""A short commit that takes longer is a reason to try the long way."""
TRIED: Final = 50
"""How many commits of each way are compared."""
KEPT: Final = 1000
"""How many go the better way before the other one is tried again."""
MUCH: Final = 0.6
"""The long way is taken if it needs less than this part of the time; less would be chance."""


class CommitWays:
    """Compares two ways by how long they take. One commit at a time, in any thread."""

    def __init__(self) -> None:
        self.is_short = True
        """Whether the next commit is to go the short way."""
        self._short_ms: deque[float] = deque(maxlen=TRIED)
        self._long_ms: deque[float] = deque(maxlen=TRIED)
        self._is_trial = False
        self._left = TRIED
        """How many commits go this way whatever they take."""

    def took(self, took_ms: float) -> None:
        """Hear how long a commit has taken that went this way from its beginning to its end."""
        (self._short_ms if self.is_short else self._long_ms).append(took_ms)
        self._left -= 1
        if self._left > 0:
            return
        if self._is_trial:
            self._choose()
        elif not self.is_short or took_ms > LATE_MS:
            self._try_other()

    def _try_other(self) -> None:
        self.is_short = not self.is_short  # first: Ctrl-C may come between, and both must be tried
        self._left = TRIED
        self._is_trial = True

    def _choose(self) -> None:
        self._is_trial = False
        self._left = KEPT
        self.is_short = fmean(self._long_ms) >= MUCH * fmean(self._short_ms)
