"""`ottla topic`: creates, shows, changes and deletes topics."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from ottla.cli.commands.config import check_are_set
from ottla.cli.support.exit_codes import FAILURE, CommandError, WrongCallError, say, sentence_of
from ottla.cli.support.options import (
    DEFAULT_BROKERS,
    Brokers,
    Format,
    Internal,
    Settings,
    key_values,
    with_cluster,
)
from ottla.cli.support.output import OutputFormat, outcomes_of, show, show_one
from ottla.cli.support.positions import Position, PositionKind, parse_position, resolve
from ottla.cli.support.standard_input import (
    Consent,
    DryRun,
    Yes,
    confirm,
    counted,
    records_by_topic,
)
from ottla.clients.admin.admin_configs import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from ottla.clients.admin.admin_topics import BROKER_DEFAULT, TopicDescription
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.admin.per_item_results import ItemsFailedError
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition, uuid_to_text

PARTITION_COLUMNS = (
    "PARTITION",
    "LEADER",
    "EPOCH",
    "REPLICAS",
    "ISR",
    "LOG-START-OFFSET",
    "LOG-END-OFFSET",
)
Topics = Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Names of topics.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The name of a topic.")]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic's setting. Repeatable."),
]
topics = typer.Typer(no_args_is_help=True)


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the noun and its verbs to the application."""
    app.add_typer(topics, name=name, help=summary)


@topics.command("create")
def create(
    names: Topics,
    partitions: Annotated[
        int,
        typer.Option("--partitions", "-p", help="Number of partitions; -1: the broker's default."),
    ] = BROKER_DEFAULT,
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas",
            "-r",
            "--replication-factor",
            help="Replicas of each partition; -1: the broker's default.",
        ),
    ] = BROKER_DEFAULT,
    configs: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic exists.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-d", help="Only check whether it could be done.")
    ] = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Create topics."""
    values = key_values(configs, "--config")

    async def work(view: ClusterView) -> dict[str, ApiError | None]:
        call = AsyncAdmin.over(view).topics.create(
            names,
            partitions=partitions,
            replication_factor=replicas,
            configs=values,
            validate_only=dry_run,
        )
        return await outcomes_of(names, call)

    outcomes = with_cluster(brokers, settings, work)
    done = dict.fromkeys(names, "could be created" if dry_run else "created")
    for name, error in outcomes.items():
        if if_not_exists and error and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            outcomes[name] = None
            done[name] = "exists already"
    _show_outcomes(outcomes, done, form)


@topics.command("list")
@topics.command("ls", hidden=True)
def list_topics(
    internal: Internal = False,
    pattern: Annotated[
        str | None, typer.Option("--regex", help="Only names that this matches as a whole.")
    ] = None,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """List topics (also: ls)."""
    try:
        wanted = re.compile(pattern or ".*")
    except re.error as error:
        raise WrongCallError(f"--regex {pattern!r} is not a regular expression: {error}") from None
    found = with_cluster(brokers, settings, lambda view: AsyncAdmin.over(view).topics.list())
    rows = [
        {
            "TOPIC": topic.name,
            "PARTITIONS": len(topic.partitions),
            "REPLICAS": topic.replication_factor,
        }
        for topic in found
        if (internal or not topic.is_internal) and wanted.fullmatch(topic.name)
    ]
    show(rows, ("TOPIC", "PARTITIONS", "REPLICAS"), form)


@topics.command("describe")
@topics.command("info", hidden=True)
def describe(
    name: Topic,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Describe a topic, its partitions and its non-default settings (also: info)."""

    async def work(view: ClusterView) -> None:
        admin = AsyncAdmin.over(view)
        topic = (await admin.topics.describe(name))[name]
        led = [row for row in topic.partitions if row.leader >= 0]
        ends = await admin.offsets.ends([TopicPartition(name, row.partition) for row in led])
        configs = [
            entry
            for entry in await _configs(admin, name)
            if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        ]
        _show_topic(topic, ends, configs, form)

    with_cluster(brokers, settings, work)


@topics.command("alter")
def alter(
    name: Topic,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="The new, greater number.")
    ] = None,
    configs: Configs = None,
    deleted: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="Reset to the default. Repeatable."),
    ] = None,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
) -> None:
    """Add partitions to a topic, or change its settings."""
    changes: dict[str, ConfigChange] = {
        **key_values(configs, "--config"),
        **dict.fromkeys(deleted or ()),
    }
    if partitions is None and not changes:
        raise WrongCallError(
            "nothing is to be altered: give --partitions, --config or --delete-config"
        )

    async def work(view: ClusterView) -> None:
        admin = AsyncAdmin.over(view)
        if deleted:
            await check_are_set(admin, ConfigResource.topic(name), deleted)
        if changes:
            await admin.configs.alter({ConfigResource.topic(name): changes})
        if partitions is not None:
            await admin.topics.create_partitions({name: partitions})

    with_cluster(brokers, settings, work)


@topics.command("trim")
def trim(
    name: Topic,
    before: Annotated[
        str,
        typer.Option(
            "--before", "-o", metavar="OFFSET", help="An offset, `end`, or `@TIME`: see consume."
        ),
    ],
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this partition. Repeatable.")
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Delete the records before an offset or a time, after asking."""
    position = parse_position(before)
    consent = Consent(yes, dry_run)

    async def work(view: ClusterView) -> None:
        admin = AsyncAdmin.over(view)
        numbers = partitions or range(len((await view.topic(name)).partitions))
        names = [TopicPartition(name, number) for number in numbers]
        ends = await admin.offsets.ends(names)
        starts = await _cuts(admin, ends, position)
        if await confirm(view, _trimmed(ends, starts), consent):
            starts = await admin.offsets.delete_before(starts)
        rows = [
            {"TOPIC": name, "PARTITION": partition, "LOG-START-OFFSET": start}
            for (_, partition), start in sorted(starts.items())
        ]
        show(rows, ("TOPIC", "PARTITION", "LOG-START-OFFSET"), form)

    with_cluster(brokers, settings, work)


@topics.command("delete")
@topics.command("rm", hidden=True)
def delete(
    names: Topics,
    yes: Yes = False,
    dry_run: DryRun = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Delete topics and all of their records, after asking."""
    consent = Consent(yes, dry_run)

    async def work(view: ClusterView) -> dict[str, ApiError | None]:
        admin = AsyncAdmin.over(view)
        found, missing = await _described(admin, names)
        if await confirm(view, await _deletions(admin, found), consent):
            return await outcomes_of(names, admin.topics.delete(names))
        return {name: missing.get(name) for name in names}

    outcomes = with_cluster(brokers, settings, work)
    done = "would be deleted" if dry_run else "deleted"
    _show_outcomes(outcomes, dict.fromkeys(names, done), form)


async def _described(
    admin: AsyncAdmin, names: Sequence[str]
) -> tuple[list[TopicDescription], dict[str, ApiError]]:
    """Describe the existing topics; return the errors of the others."""
    try:
        return [*(await admin.topics.describe(names)).values()], {}
    except ItemsFailedError as error:
        return [*error.done.values()], error.failed


async def _deletions(admin: AsyncAdmin, found: Sequence[TopicDescription]) -> list[str]:
    """Return the effect of deleting each topic, as a phrase."""
    led = [
        TopicPartition(topic.name, row.partition)
        for topic in found
        for row in topic.partitions
        if row.leader >= 0
    ]
    count_by_topic = await records_by_topic(admin, led) if led else {}
    return [
        f"delete topic {topic.name}: {counted(len(topic.partitions), 'partition')}, "
        f"{counted(count_by_topic.get(topic.name, 0), 'record')} at most"
        for topic in found
    ]


def _trimmed(
    ends: Mapping[TopicPartition, tuple[int, int]], cuts: Mapping[TopicPartition, int]
) -> list[str]:
    return [
        f"delete {counted(cut - ends[name][0], 'record')} of {name}, "
        f"offsets {ends[name][0]} to {cut - 1}"
        for name, cut in cuts.items()
        if cut > ends[name][0]
    ]


async def _cuts(
    admin: AsyncAdmin, ends: Mapping[TopicPartition, tuple[int, int]], position: Position
) -> dict[TopicPartition, int]:
    """Return the offset to trim each partition at; an offset past the end is refused.

    `resolve` clamps to the log, which would delete every record because of a mistyped offset.
    """
    if position.kind in {PositionKind.OFFSET, PositionKind.START}:
        for name, (start, end) in ends.items():
            cut = position.value + (start if position.kind is PositionKind.START else 0)
            if cut > end:
                raise CommandError(
                    f"offset {cut} is past the end of {name}, which is {end}, "
                    "so nothing was deleted: `--before end` deletes every record"
                )
    return await resolve(admin, [*ends], position)


async def _configs(admin: AsyncAdmin, name: str) -> list[ConfigEntry]:
    """Return a topic's settings, or none if the broker cannot describe them."""
    try:
        resource = ConfigResource.topic(name)
        return [*(await admin.configs.describe(resource))[resource].values()]
    except ApiError as error:
        if error.code.name != "UNSUPPORTED_VERSION":
            raise
        return []


def _show_topic(
    topic: TopicDescription,
    ends: dict[TopicPartition, tuple[int, int]],
    configs: Sequence[ConfigEntry],
    form: OutputFormat,
) -> None:
    rows = []
    for row in topic.partitions:
        start, end = ends.get(TopicPartition(topic.name, row.partition), (None, None))
        cells = (row.partition, row.leader, row.leader_epoch, list(row.replicas))
        cells_after = (list(row.in_sync_replicas), start, end)
        rows.append(dict(zip(PARTITION_COLUMNS, (*cells, *cells_after), strict=True)))
    summary: dict[str, object] = {
        "TOPIC": topic.name,
        "TOPIC-ID": uuid_to_text(topic.topic_id),
        "INTERNAL": topic.is_internal,
        "PARTITIONS": len(topic.partitions),
        "REPLICAS": topic.replication_factor,
        "CONFIGS": [f"{entry.name}={entry.value}" for entry in configs],
    }
    if form is OutputFormat.JSON:
        summary["CONFIGS"] = [{"name": entry.name, "value": entry.value} for entry in configs]
        summary["PARTITIONS"] = [
            {key.lower().replace("-", "_"): value for key, value in row.items()} for row in rows
        ]
    show_one(summary, form)
    if form is OutputFormat.TABLE:
        show(rows, PARTITION_COLUMNS, form)


def _show_outcomes(
    outcomes: dict[str, ApiError | None], done: Mapping[str, str], form: OutputFormat
) -> None:
    rows = [
        {"TOPIC": name, "STATUS": done[name] if error is None else error.code.name}
        for name, error in outcomes.items()
    ]
    show(rows, ("TOPIC", "STATUS"), form)
    failures = [error for error in outcomes.values() if error is not None]
    for error in failures:
        say(sentence_of(error))
    if failures:
        raise SystemExit(FAILURE)
