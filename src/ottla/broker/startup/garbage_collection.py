"""Full collections of cyclic garbage, at times when they are short.

A full collection visits every object, and blocks the event loop: half a second with 48,000 waiting
requests. Python starts one whenever enough objects have become old. `ottla start` prevents that
(`keep_young`), and the broker collects once a minute, if there is reason to and few requests are in
progress. Requests are not in cycles: they are freed without any collection.
"""

import gc
from collections.abc import Callable
from typing import Final

YOUNG_OBJECTS: Final = 10_000
"""The number of new objects per collection of young objects. Thousands of requests wait, and none
of them is in a cycle: a collection every 700 objects, Python's default, is wasted."""
COLLECTIONS_OF_MIDDLE: Final = 10
"""Python's default: the number of young collections per older collection."""
NEVER: Final = (1 << 31) - 1
REQUESTS_BYTES_MAX: Final = 4 << 20
"""Memory of requests in progress up to which a full collection does not take long."""


def keep_young() -> None:
    """Let Python collect young garbage only."""
    gc.set_threshold(YOUNG_OBJECTS, COLLECTIONS_OF_MIDDLE, NEVER)


class GarbageCollection:
    """Collects all garbage when that is short."""

    def __init__(self, requests_bytes: Callable[[], int]) -> None:
        self._requests_bytes = requests_bytes

    def a_minute_has_passed(self) -> None:
        """Collect if objects have become old since the last time, and few requests are there."""
        is_due = gc.get_count()[2] >= COLLECTIONS_OF_MIDDLE
        if is_due and self._requests_bytes() <= REQUESTS_BYTES_MAX:
            gc.collect()
