"""auto.offset.reset: where to start without a position, or if the position is out of range."""

import re
from dataclasses import dataclass
from typing import Final

from ottla.model.isolation_level import EARLIEST, LATEST

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+)(?:\.(?P<fraction>\d{1,9}))?S)?)?",
    re.IGNORECASE,
)
_BY_DURATION: Final = "by_duration:"


@dataclass(frozen=True, slots=True)
class ResetPolicy:
    """A time to look up, or a duration before now, or neither: then poll raises."""

    time_ms: int | None = None
    duration_ms: int | None = None

    @property
    def is_none(self) -> bool:
        """Whether the application must seek itself."""
        return self.time_ms is None and self.duration_ms is None

    def time_at(self, now_ms: int) -> int:
        """Return the time for ListOffsets, which may be LATEST or EARLIEST."""
        assert not self.is_none
        return now_ms - (self.duration_ms or 0) if self.time_ms is None else self.time_ms


def parse_reset_policy(text: str) -> ResetPolicy:
    """Parse earliest, latest, none or by_duration:PnDTnHnMn.nS; ValueError for anything else."""
    known = {
        "earliest": ResetPolicy(time_ms=EARLIEST),
        "latest": ResetPolicy(time_ms=LATEST),
        "none": ResetPolicy(),
    }
    if text.startswith(_BY_DURATION):
        return ResetPolicy(duration_ms=_duration_ms(text.removeprefix(_BY_DURATION)))
    if text not in known:
        raise ValueError(
            f"auto.offset.reset is {text!r}: expected earliest, latest, none, or "
            "by_duration: with an ISO 8601 duration such as P3DT1H"
        )
    return known[text]


def _duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text)
    parts = {} if match is None else {name: n for name, n in match.groupdict().items() if n}
    if not parts:
        raise ValueError(f"{text!r} is no duration: expected one such as P3D, PT1H30M or PT0.5S")
    days, hours, minutes, seconds = (
        int(parts.get(name, 0)) for name in ("days", "hours", "minutes", "seconds")
    )
    fraction_ms = int(parts.get("fraction", "0").ljust(9, "0")) // 1_000_000
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms
