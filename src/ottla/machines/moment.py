"""The time at which something is decided."""

from typing import NamedTuple


class Moment(NamedTuple):
    """One moment on both clocks: records are stamped by the wall, deadlines are monotonic."""

    wall_ms: int
    monotonic_ms: int
