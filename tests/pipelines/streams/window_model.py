"""The expected results of windows, in plain Python: event times in seconds, runs of a query."""

from collections import Counter
from collections.abc import Callable, Iterable

Event = tuple[str, int]
"""A key, and its event time."""
Pane = tuple[str, int, int]
"""A key, with the start and the end of its window."""


class WindowModel:
    """Counts by window; each window is given out once, when the watermark has passed its end."""

    def __init__(self, late: int, panes: Callable[[int], Iterable[tuple[int, int]]]) -> None:
        self._late = late
        self._panes = panes
        self._watermark = 0
        self._open: Counter[Pane] = Counter()

    def round(self, events: Iterable[Event]) -> Counter[Pane]:
        """Process the input of one run of the query, and return its output."""
        events = list(events)
        for key, time in events:
            for start, end in self._panes(time):
                if end > self._watermark:
                    self._add((key, start, end))
        self._watermark = max([self._watermark, *(time - self._late for _, time in events)])
        closed = {pane: n for pane, n in self._open.items() if pane[2] <= self._watermark}
        for pane in closed:
            del self._open[pane]
        return Counter(closed)

    def _add(self, pane: Pane) -> None:
        self._open[pane] += 1


class SessionModel(WindowModel):
    """The same for sessions: overlapping sessions are merged."""

    def __init__(self, late: int, gap: int) -> None:
        super().__init__(late, lambda time: [(time, time + gap)])

    def _add(self, pane: Pane) -> None:
        key, start, end = pane
        count = 1
        for other in [o for o in self._open if o[0] == key and o[1] <= end and start <= o[2]]:
            count += self._open.pop(other)
            start, end = min(start, other[1]), max(end, other[2])
        self._open[key, start, end] = count


def hopping(size: int, every: int) -> Callable[[int], list[tuple[int, int]]]:
    """Return the windows of a time, for windows of this size and slide."""

    def panes(time: int) -> list[tuple[int, int]]:
        last = time - time % every
        return [(start, start + size) for start in range(last, time - size, -every)]

    return panes
