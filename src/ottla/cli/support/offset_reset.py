"""The new offsets of a group: the rules of Kafka's `--reset-offsets`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ottla.cli.support.exit_codes import WrongCallError
from ottla.cli.support.positions import (
    END,
    START,
    Position,
    PositionKind,
    parse_duration_ms,
    parse_time_ms,
    resolve,
)
from ottla.clients.admin.admin_groups import CommittedOffset
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import SystemClock


@dataclass(frozen=True, slots=True)
class Reset:
    """One position for every partition, or a number of records relative to the committed offset."""

    position: Position | None
    shift_by: int = 0


def chosen_reset(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    shift_by: int | None,
) -> Reset:
    """Read the options, of which there must be exactly one."""
    said = (to_earliest, to_latest, to_current)
    given = (to_offset, to_datetime, by_duration, shift_by)
    if sum(said) + sum(value is not None for value in given) != 1:
        raise WrongCallError(
            "say where to go, once: --to-earliest, --to-latest, --to-current, --to-offset, "
            "--to-datetime, --by-duration or --shift-by"
        )
    if to_current or shift_by is not None:
        return Reset(None, shift_by or 0)
    return Reset(_position(to_earliest, to_offset, to_datetime, by_duration))


def _position(
    is_start: bool, to_offset: int | None, to_datetime: str | None, by_duration: str | None
) -> Position:
    if to_offset is not None:
        return Position(PositionKind.OFFSET, to_offset)
    if to_datetime is not None:
        return Position(PositionKind.TIME, parse_time_ms(to_datetime))
    if by_duration is not None:
        ago_ms = parse_duration_ms(by_duration)
        return Position(PositionKind.TIME, SystemClock().now_ms() - ago_ms)
    return START if is_start else END


async def new_offsets(
    admin: AsyncAdmin,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
    reset: Reset,
) -> dict[TopicPartition, int]:
    """Return the new offset of each partition, within its log; without a commit, its end."""
    if not partitions:
        return {}
    if reset.position is not None:
        return await resolve(admin, partitions, reset.position)
    offsets = {}
    for name, (start, end) in (await admin.offsets.ends(partitions)).items():
        current = committed[name].offset if name in committed else end
        offsets[name] = min(max(current + reset.shift_by, start), end)
    return offsets
