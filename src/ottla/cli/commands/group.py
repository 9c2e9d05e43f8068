"""`ottla group`: shows consumer groups, moves them to other offsets, and deletes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from ottla.cli.support.exit_codes import FAILURE, CommandError, WrongCallError, say, sentence_of
from ottla.cli.support.options import (
    DEFAULT_BROKERS,
    Brokers,
    Format,
    Settings,
    parse_partitions,
    with_cluster,
)
from ottla.cli.support.output import OutputFormat, Row, outcomes_of, show, show_one
from ottla.cli.support.positions import (
    END,
    START,
    Position,
    PositionKind,
    parse_duration_ms,
    parse_time_ms,
    resolve,
)
from ottla.cli.support.standard_input import Consent, DryRun, Yes, cluster_name, confirm, counted
from ottla.clients.admin.admin_groups import CommittedOffset
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.admin.group_descriptions import GroupDescription, GroupMember
from ottla.clients.admin.per_item_results import ItemsFailedError
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import SystemClock

OFFSET_COLUMNS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)
MEMBER_COLUMNS = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT")
INACTIVE = ("Empty", "Dead")
Group = Annotated[str, typer.Argument(metavar="GROUP", help="The name of a group.")]
ResetTopics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:0,1]",
        help="Only this topic, or these partitions of it. Repeatable.",
    ),
]
AllTopics = Annotated[
    bool, typer.Option("--all-topics", help="Every topic that the group has offsets for.")
]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="To the start of the log.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="To its end.")]
ToCurrent = Annotated[
    bool, typer.Option("--to-current", help="To the committed offset, or the end.")
]
ToOffset = Annotated[int | None, typer.Option(min=0, help="To this offset.")]
ToDatetime = Annotated[
    str | None, typer.Option(metavar="TIME", help="To the first record at or after it.")
]
ByDuration = Annotated[
    str | None, typer.Option(metavar="1h30m", help="To the first record this long ago.")
]
ShiftBy = Annotated[int | None, typer.Option(help="Move by this many records; back if negative.")]
Execute = Annotated[
    bool,
    typer.Option(
        "--execute", "--yes", "-y", help="Make the change; without this it is only shown."
    ),
]
ResetDryRun = Annotated[
    bool, typer.Option("--dry-run", "-d", help="Only show it, which is the default.")
]
groups = typer.Typer(no_args_is_help=True)


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


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the noun and its verbs to the application."""
    app.add_typer(groups, name=name, help=summary)


@groups.command("list")
@groups.command("ls", hidden=True)
def list_groups(
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """List groups (also: ls)."""
    found = with_cluster(brokers, settings, lambda view: AsyncAdmin.over(view).groups.list())
    rows = [
        {
            "GROUP": row.group_id,
            "PROTOCOL-TYPE": row.protocol_type,
            "STATE": row.state,
            "COORDINATOR": row.coordinator_id,
        }
        for row in found
    ]
    show(rows, ("GROUP", "PROTOCOL-TYPE", "STATE", "COORDINATOR"), form)


@groups.command("describe")
@groups.command("info", hidden=True)
def describe(
    group: Group,
    members: Annotated[
        bool, typer.Option("--members", help="Show the members instead of offsets.")
    ] = False,
    state: Annotated[
        bool, typer.Option("--state", help="Show its state instead of offsets.")
    ] = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Show a group's committed offsets and its lag (also: info)."""

    async def work(view: ClusterView) -> None:
        admin = AsyncAdmin.over(view)
        described = (await admin.groups.describe(group))[group]
        if state:
            _show_state(described, form)
        elif members:
            show([_member_row(group, member) for member in described.members], MEMBER_COLUMNS, form)
        else:
            show(await _offset_rows(admin, described), OFFSET_COLUMNS, form)

    with_cluster(brokers, settings, work)


@groups.command("reset-offsets")
@groups.command("seek", hidden=True)
def reset_offsets(
    group: Group,
    topics: ResetTopics = None,
    all_topics: AllTopics = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: ToCurrent = False,
    to_offset: ToOffset = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    shift_by: ShiftBy = None,
    execute: Execute = False,
    dry_run: ResetDryRun = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Move a group, which must have no members, to other offsets (also: seek)."""
    if execute and dry_run:
        raise WrongCallError("--execute and --dry-run exclude each other: give only one")
    if bool(topics) == all_topics:
        raise WrongCallError("no topic to reset: give --topic TOPIC, or --all-topics")
    reset = chosen_reset(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        to_datetime=to_datetime,
        by_duration=by_duration,
        shift_by=shift_by,
    )

    async def work(view: ClusterView) -> tuple[str, dict[TopicPartition, int]]:
        offsets = await _reset(view, group, topics or (), reset, execute=execute)
        return await cluster_name(view), offsets

    cluster, offsets = with_cluster(brokers, settings, work)
    rows = [
        {"GROUP": group, "TOPIC": name.topic, "PARTITION": name.partition, "NEW-OFFSET": offset}
        for name, offset in sorted(offsets.items())
    ]
    show(rows, ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), form)
    if execute:
        say(f"{cluster}: {counted(len(offsets), 'offset')} committed for group {group}")
    else:
        say(f"{cluster}: nothing was changed; --execute does it")


@groups.command("delete")
@groups.command("rm", hidden=True)
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP…", help="Names of groups.")],
    yes: Yes = False,
    dry_run: DryRun = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Delete groups that have no members, with their offsets, after asking."""
    consent = Consent(yes, dry_run)

    async def work(view: ClusterView) -> dict[str, ApiError | None]:
        admin = AsyncAdmin.over(view)
        effects, refusals = await _deletions(admin, names)
        if not await confirm(view, effects, consent):
            return {name: refusals.get(name) for name in names}
        return await outcomes_of(names, admin.groups.delete(names))

    outcomes = with_cluster(brokers, settings, work)
    done = "would be deleted" if dry_run else "deleted"
    rows = [
        {"GROUP": name, "STATUS": done if error is None else error.code.name}
        for name, error in outcomes.items()
    ]
    show(rows, ("GROUP", "STATUS"), form)
    failures = [error for error in outcomes.values() if error is not None]
    for error in failures:
        say(sentence_of(error))
    if failures:
        raise SystemExit(FAILURE)


async def _deletions(
    admin: AsyncAdmin, names: Sequence[str]
) -> tuple[list[str], dict[str, ApiError]]:
    """Return the effects of deleting each group, and the errors of groups that brokers refuse."""
    refusals: dict[str, ApiError] = {}
    try:
        described = await admin.groups.describe(names)
    except ItemsFailedError as error:
        described, refusals = error.done, error.failed
    effects = []
    for name, found in described.items():
        if found.state not in INACTIVE:
            detail = f"group {name!r} has members: stop them first"
            refusals[name] = ApiError(ErrorCode.NON_EMPTY_GROUP, detail)
            continue
        committed = await admin.groups.committed(name)
        effects.append(f"delete group {name}, with {counted(len(committed), 'committed offset')}")
    return effects, refusals


async def _reset(
    view: ClusterView, group: str, topics: Sequence[str], reset: Reset, *, execute: bool
) -> dict[TopicPartition, int]:
    admin = AsyncAdmin.over(view)
    is_known = any(row.group_id == group for row in await admin.groups.list())
    if is_known and (await admin.groups.describe(group))[group].state not in INACTIVE:
        raise CommandError(f"group {group!r} has members: stop them first")
    committed = await admin.groups.committed(group) if is_known else {}
    names = await _partitions(view, topics) if topics else sorted(committed)
    offsets = await new_offsets(admin, names, committed, reset)
    if execute and offsets:
        await admin.groups.commit(group, offsets)
    return offsets


async def _partitions(view: ClusterView, words: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions of `TOPIC` or `TOPIC:0,1`."""
    names = []
    for word in words:
        topic, numbers = parse_partitions(word)
        found = await view.topic(topic)
        wanted = range(len(found.partitions)) if numbers is None else numbers
        names += [TopicPartition(topic, number) for number in wanted]
    for name in names:
        await view.partition(name)
    return names


async def _offset_rows(admin: AsyncAdmin, group: GroupDescription) -> list[Row]:
    committed = await admin.groups.committed(group.group_id)
    member_by_partition = {name: row for row in group.members for name in row.partitions}
    names = sorted({*committed, *member_by_partition})
    ends = await admin.offsets.ends(names) if names else {}
    return [
        _offset_row(group.group_id, name, committed.get(name), ends[name][1])
        | _owner(member_by_partition.get(name))
        for name in names
    ]


def _offset_row(
    group_id: str, name: TopicPartition, committed: CommittedOffset | None, end_offset: int
) -> dict[str, object]:
    return {
        "GROUP": group_id,
        "TOPIC": name.topic,
        "PARTITION": name.partition,
        "CURRENT-OFFSET": committed.offset if committed else None,
        "LOG-END-OFFSET": end_offset,
        "LAG": max(end_offset - committed.offset, 0) if committed else None,
    }


def _owner(member: GroupMember | None) -> dict[str, object]:
    if member is None:
        return dict.fromkeys(("CONSUMER-ID", "HOST", "CLIENT-ID"))
    return {"CONSUMER-ID": member.member_id, "HOST": member.host, "CLIENT-ID": member.client_id}


def _member_row(group_id: str, member: GroupMember) -> dict[str, object]:
    return {
        "GROUP": group_id,
        **_owner(member),
        "#PARTITIONS": len(member.partitions),
        "ASSIGNMENT": [str(name) for name in member.partitions],
    }


def _show_state(group: GroupDescription, form: OutputFormat) -> None:
    row = {
        "GROUP": group.group_id,
        "STATE": group.state,
        "ASSIGNMENT-STRATEGY": group.assignor,
        "#MEMBERS": len(group.members),
    }
    show_one(row, form)
