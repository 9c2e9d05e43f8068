"""Places in a topic, as people write them, and the offsets that they come to.

start, end           the ends of the log (also: earliest, beginning; latest)
47                   this offset
+2, -3               two after the start, three before the end
@1700000000000       the first record at or after this time, in milliseconds,
@2026-11-15T12:00    or by date (UTC, if no other zone is said),
@-5m                 or this long ago (ms, s, m, h, d)
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple

from ottla.cli.support.exit_codes import WrongCallError
from ottla.clients.admin.admin_offsets import NO_OFFSET
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import SystemClock

_MS_BY_UNIT: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d{1,15})(ms|s|m|h|d)")
_ISO_DURATION: Final = re.compile(
    r"P(?:(\d{1,8})D)?(?:T(?:(\d{1,8})H)?(?:(\d{1,8})M)?(?:(\d{1,8}(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_DURATION_MS_MAX: Final = 10_000 * 365 * _MS_BY_UNIT["d"]


class PositionKind(Enum):
    """The origin of a position's number."""

    START = "start"
    END = "end"
    OFFSET = "offset"
    TIME = "time"


class Position(NamedTuple):
    """A place in every partition of a topic."""

    kind: PositionKind
    value: int = 0


START: Final = Position(PositionKind.START)
END: Final = Position(PositionKind.END)
_POSITION_BY_WORD: Final = {
    "start": START,
    "earliest": START,
    "beginning": START,
    "oldest": START,
    "end": END,
    "latest": END,
    "newest": END,
}


def parse_position(text: str) -> Position:
    """Parse a position; invalid text is a wrong call."""
    if text.lower() in _POSITION_BY_WORD:
        return _POSITION_BY_WORD[text.lower()]
    if text.startswith("@"):
        return Position(PositionKind.TIME, parse_time_ms(text[1:]))
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        kind = {"+": PositionKind.START, "-": PositionKind.END}.get(text[0], PositionKind.OFFSET)
        return Position(kind, int(text))
    raise WrongCallError(f"{text!r} is no place in a topic: give start, end, 47, +2, -3 or @TIME")


def parse_time_ms(text: str) -> int:
    """Parse a time: milliseconds, a date, or a duration ago; invalid text is a wrong call."""
    if re.fullmatch(r"\d{1,16}", text):
        return int(text)
    if text.startswith("-"):
        return SystemClock().now_ms() - parse_duration_ms(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongCallError(
            f"{text!r} is no time: give 2026-11-15T12:00:00, milliseconds since 1970, or -5m"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def parse_duration_ms(text: str) -> int:
    """Parse `1h30m` or, as in Kafka's tools, `PT1H30M`; invalid text is a wrong call."""
    length_ms = _duration_ms(text)
    if length_ms is None:
        raise WrongCallError(f"{text!r} is no duration: give 90s, 1h30m or PT1H30M")
    if length_ms > _DURATION_MS_MAX:
        raise WrongCallError(f"{text!r} is no duration that ends: give 10000 years at most")
    return length_ms


def _duration_ms(text: str) -> int | None:
    if text and "".join(match[0] for match in _DURATION.finditer(text)) == text:
        return sum(int(count) * _MS_BY_UNIT[unit] for count, unit in _DURATION.findall(text))
    match = _ISO_DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes, seconds = (float(group or 0) for group in match.groups())
    length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return length // timedelta(milliseconds=1)


async def resolve(
    admin: AsyncAdmin, partitions: Sequence[TopicPartition], position: Position
) -> dict[TopicPartition, int]:
    """Return the offset of a position in each partition, never outside of its log.

    A time later than every record is the end.
    """
    ends = await admin.offsets.ends(partitions)
    if position.kind is PositionKind.TIME:
        found = await admin.offsets.find(dict.fromkeys(partitions, position.value))
        return {
            name: ends[name][1] if found[name].offset == NO_OFFSET else found[name].offset
            for name in partitions
        }
    return {name: _within(position, *ends[name]) for name in partitions}


def _within(position: Position, start_offset: int, end_offset: int) -> int:
    origin = {PositionKind.START: start_offset, PositionKind.END: end_offset}
    offset = origin.get(position.kind, 0) + position.value
    return min(max(offset, start_offset), end_offset)
