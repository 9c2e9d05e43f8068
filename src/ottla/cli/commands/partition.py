"""`ottla partition`: lists partitions, moves them between brokers and log dirs, elects leaders."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.support.exit_codes import CommandError, WrongCallError
from ottla.cli.support.options import (
    DEFAULT_BROKERS,
    Brokers,
    Format,
    Internal,
    Settings,
    internal_topics,
    named_partitions,
    parse_brokers,
    parse_partitions,
    with_cluster,
)
from ottla.cli.support.output import OutputFormat, Row, show
from ottla.cli.support.reassignment import (
    LOOK_EVERY_MS,
    How,
    Picture,
    Progress,
    carry_out,
    end_with_failures,
    show_moves,
    take_back,
    take_picture,
)
from ottla.cli.support.standard_input import Consent, DryRun, Yes, confirm
from ottla.clients.admin.admin_configs import ConfigResource
from ottla.clients.admin.admin_partitions import ElectionType, PartitionDescription
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.admin.per_item_results import ItemsFailedError
from ottla.clients.admin.reassignment_plan import (
    ImpossiblePlanError,
    InvalidPlanError,
    Plan,
    loads,
    read_plan,
    spread,
)
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition

COLUMNS = ("TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "ELR")
FOLDER_COLUMNS = ("TOPIC", "PARTITION", "BROKER", "LOG-DIR", "STATUS")
MIN_ISR = "min.insync.replicas"
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC[:0,1]…", help="Topics, or partitions of them."),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="1,2,3", help="Spread the replicas over these brokers."),
]
PlanFile = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="A file with the plan, in Kafka's JSON."),
]
Throttle = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        min=1,
        metavar="BYTES/S",
        help="Limit the move to this rate per broker, and wait for its end.",
    ),
]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Show progress until it is done.")]
partitions = typer.Typer(no_args_is_help=True)


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the noun and its verbs to the application."""
    app.add_typer(partitions, name=name, help=summary)


@partitions.command("list")
@partitions.command("ls", hidden=True)
def list_partitions(
    words: Words = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Those with a replica that is not in sync.")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Those without a leader.")] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option(
            "--under-min-isr", help="Only partitions that refuse acks=all: too few in sync."
        ),
    ] = False,
    not_preferred: Annotated[
        bool,
        typer.Option(
            "--not-preferred", help="Only partitions led by another than their first replica."
        ),
    ] = False,
    internal: Internal = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """List all partitions, or only the selected kinds (also: ls).

    Partitions of internal topics are listed if they are named, match a selected kind, or with
    --internal.
    """

    async def work(view: ClusterView) -> list[PartitionDescription]:
        admin = AsyncAdmin.over(view)
        found = await (named_partitions(admin, words) if words else admin.partitions.describe())
        if not (under_replicated or offline or under_min_isr or not_preferred):
            hidden = () if words or internal else await internal_topics(admin)
            return [row for row in found if row.name.topic not in hidden]
        min_isr = await _min_isr_by_topic(admin, found) if under_min_isr else {}
        return [
            row
            for row in found
            if (under_replicated and len(row.in_sync_replicas) < len(row.replicas))
            or (offline and not row.has_leader)
            or (under_min_isr and _is_under(row, min_isr[row.name.topic]))
            or (not_preferred and row.leader != row.replicas[0])
        ]

    found = with_cluster(brokers, settings, work)
    show([_partition_row(row) for row in found], COLUMNS, form)


@partitions.command("reassign")
def reassign(
    words: Words = None,
    to: To = None,
    file: PlanFile = None,
    dry_run: DryRun = False,
    throttle: Throttle = None,
    wait: Wait = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel running moves: those named, or all.")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="Show the running moves.")] = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Move partitions to other brokers, with the fewest replica moves."""
    _check_call(words, to, file, cancel=cancel, status=status)
    targets = parse_brokers(to, "--to") if to else []
    from_file = _plan_of(file) if file else {}
    how = How(dry_run, wait or throttle is not None, throttle, form)

    async def work(view: ClusterView) -> None:
        admin = AsyncAdmin.over(view)
        if status:
            await show_moves(admin, form, waits=wait)
        elif cancel:
            await take_back(admin, await _moving(admin, words, from_file), form)
        else:
            picture = await take_picture(admin)
            plan = (
                _checked(picture, from_file)
                if file
                else await _spread(admin, picture, words or (), targets)
            )
            await carry_out(admin, picture, plan, how)

    with_cluster(brokers, settings, work, ImpossiblePlanError)


@partitions.command("elect")
def elect(
    words: Words = None,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="Elect replicas out of sync, too. LOSES RECORDS."),
    ] = False,
    everywhere: Annotated[
        bool, typer.Option("--all", help="Wherever an election is needed.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Make the first replica the leader, if it is in sync; --unclean asks first."""
    if bool(words) == everywhere:
        raise WrongCallError("say where to elect: TOPIC, TOPIC:PARTITION, or --all")
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    consent = Consent(yes, dry_run)

    async def work(view: ClusterView) -> None:
        admin = AsyncAdmin.over(view)
        found = await (named_partitions(admin, words) if words else admin.partitions.describe())
        needed = [row.name for row in found if _needs_election(row, kind)]
        lossy = [
            f"let a replica that is not in sync lead {name}: its missing records are lost"
            for name in needed
            if unclean
        ]
        if await confirm(view, lossy, consent):
            outcomes = await _elected(admin, kind, [row.name for row in found] if words else None)
        else:
            outcomes = dict.fromkeys(needed)
        done = "would be elected" if dry_run else "elected"
        rows = [
            {
                "TOPIC": name.topic,
                "PARTITION": name.partition,
                "RESULT": done if error is None else error.code.name,
            }
            for name, error in outcomes.items()
        ]
        show(rows, ("TOPIC", "PARTITION", "RESULT"), form)
        needless = ErrorCode.ELECTION_NOT_NEEDED
        end_with_failures(
            {name: e for name, e in outcomes.items() if e is not None and e.code is not needless}
        )

    with_cluster(brokers, settings, work)


@partitions.command("move")
def move(
    word: Annotated[str, typer.Argument(metavar="TOPIC:PARTITION", help="One partition.")],
    broker: Annotated[int, typer.Option("--broker", help="The broker with the replica.")],
    log_dir: Annotated[
        str, typer.Option("--log-dir", metavar="PATH", help="Another directory of that broker.")
    ],
    wait: Wait = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Move a broker's replica of a partition to another of its log dirs."""
    topic, numbers = parse_partitions(word)
    if numbers is None or len(numbers) != 1:
        raise WrongCallError(f"name one partition, as in {topic}:0")
    name = TopicPartition(topic, numbers[0])

    async def work(view: ClusterView) -> None:
        admin = AsyncAdmin.over(view)
        await named_partitions(admin, [word])
        await admin.partitions.move_to_log_dirs(broker, {name: log_dir})
        if wait:
            await _wait_for_folder(admin, broker, name, log_dir)
        cells = (name.topic, name.partition, broker, log_dir, "done" if wait else "begun")
        show([dict(zip(FOLDER_COLUMNS, cells, strict=True))], FOLDER_COLUMNS, form)

    with_cluster(brokers, settings, work)


def _check_call(
    words: Sequence[str] | None, to: str | None, file: Path | None, *, cancel: bool, status: bool
) -> None:
    if status and cancel:
        raise WrongCallError("--status and --cancel exclude each other: give only one")
    if (status or cancel) and to:
        raise WrongCallError("--to begins a move, --status and --cancel do not")
    if status and (words or file):
        raise WrongCallError("--status shows every move: name none")
    if status or cancel:
        return
    if bool(words) == bool(file) or bool(words) != bool(to):
        raise WrongCallError("nothing to move: give TOPIC --to 1,2,3, or --file plan.json")


def _plan_of(file: Path) -> Plan:
    try:
        return read_plan(file.read_bytes())
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}") from None
    except InvalidPlanError as error:
        raise CommandError(f"{file} is not a plan: {error}") from None


def _checked(picture: Picture, plan: Plan) -> Plan:
    """Return the changes of a plan; refuse unknown partitions and brokers."""
    for name, replicas in plan.items():
        if name not in picture.current:
            raise CommandError(f"the plan has {name}, and there is no such partition")
        picture.sites_of(replicas)
    return {name: row for name, row in plan.items() if row != picture.current[name]}


async def _spread(
    admin: AsyncAdmin, picture: Picture, words: Sequence[str], targets: Sequence[int]
) -> Plan:
    chosen = [row.name for row in await named_partitions(admin, words)]
    sites = picture.sites_of(targets)
    elsewhere = loads(picture.current, without=chosen)
    return spread({name: picture.current[name] for name in chosen}, sites, elsewhere)


async def _moving(
    admin: AsyncAdmin, words: Sequence[str] | None, from_file: Plan
) -> list[TopicPartition]:
    """Return the partitions with a reassignment to cancel: the named ones, or all."""
    moves = await admin.partitions.reassignments()
    if words:
        return [row.name for row in await named_partitions(admin, words) if row.name in moves]
    return [name for name in moves if not from_file or name in from_file]


async def _min_isr_by_topic(
    admin: AsyncAdmin, found: Sequence[PartitionDescription]
) -> dict[str, int]:
    resources = {ConfigResource.topic(row.name.topic) for row in found}
    described = await admin.configs.describe(resources, keys=[MIN_ISR])
    return {
        resource.name: int(entries[MIN_ISR].value or 1) for resource, entries in described.items()
    }


async def _elected(
    admin: AsyncAdmin, kind: ElectionType, names: Sequence[TopicPartition] | None
) -> dict[TopicPartition, ApiError | None]:
    """Hold elections; return the error of each partition, if any."""
    try:
        return dict.fromkeys(await admin.partitions.elect(kind, names))
    except ItemsFailedError as error:
        return {**dict.fromkeys(error.done), **error.failed}


def _needs_election(row: PartitionDescription, kind: ElectionType) -> bool:
    """Whether an election of this kind changes the leader, if a replica can lead at all."""
    return not row.has_leader if kind is ElectionType.UNCLEAN else row.leader != row.replicas[0]


def _is_under(row: PartitionDescription, min_isr: int) -> bool:
    """Whether acks=all is refused; the minimum is limited by the number of replicas (KIP-966)."""
    return len(row.in_sync_replicas) < min(min_isr, len(row.replicas))


async def _wait_for_folder(admin: AsyncAdmin, broker: int, name: TopicPartition, path: str) -> None:
    progress = Progress()
    while True:
        folders = (await admin.cluster.log_dirs(broker))[broker]
        future = next((row for row in folders if name in row.lag_by_future), None)
        if future is None:
            break
        progress.tell(f"{name} lacks {future.lag_by_future[name]} records in {future.path}")
        await pause(LOOK_EVERY_MS)
    progress.end()
    if not any(row.path == path and name in row.size_by_partition for row in folders):
        raise CommandError(f"{name} has not been moved: the broker's log says why")


def _partition_row(row: PartitionDescription) -> Row:
    return {
        "TOPIC": row.name.topic,
        "PARTITION": row.name.partition,
        "LEADER": row.leader if row.has_leader else None,
        "EPOCH": row.leader_epoch,
        "REPLICAS": row.replicas,
        "ISR": row.in_sync_replicas,
        "ELR": row.eligible_leader_replicas,
    }
