"""Full collections of cyclic garbage, at times when they are short.

A full collection looks at every object, and the event loop waits for it: half a second where 48,000
requests wait. Python begins one whenever enough objects have become old. `ottla start` forbids that
(`keep_young`), and the broker collects once a minute, if there is reason to and few requests are
in progress. Requests are not in cycles: they are freed without any collection.
"""

import gc
from collections.abc import Callable
from typing import Final

YOUNG_OBJECTS: Final = 10_000
"""How many more objects there are before young ones are looked through. Requests that wait are
thousands, and none of them is in a cycle: looking at every 700, as Python does, costs more than it
finds."""
COLLECTIONS_OF_MIDDLE: Final = 10
"""As Python has it: how often young objects are looked through before older ones are."""
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
