"""`ottla broker`: lists, drains and removes brokers."""

from typing import Annotated

import typer

from ottla.cli.commands.partition import Throttle, To, Wait
from ottla.cli.support.exit_codes import CommandError
from ottla.cli.support.options import (
    DEFAULT_BROKERS,
    Brokers,
    Format,
    Settings,
    parse_brokers,
    with_cluster,
)
from ottla.cli.support.output import OutputFormat, Row, show
from ottla.cli.support.reassignment import How, Picture, carry_out, sizes_by_broker, take_picture
from ottla.cli.support.standard_input import Consent, DryRun, Yes, confirm, counted
from ottla.clients.admin.admin_cluster import BrokerDescription
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.admin.reassignment_plan import ImpossiblePlanError, Plan, drain, loads
from ottla.clients.cluster.cluster_client import ClusterView

COLUMNS = ("ID", "HOST", "PORT", "RACK", "FENCED", "LEADERS", "REPLICAS", "BYTES")
BrokerId = Annotated[int, typer.Argument(metavar="ID", help="The number of a broker.")]
nouns = typer.Typer(no_args_is_help=True)


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the noun and its verbs to the application."""
    app.add_typer(nouns, name=name, help=summary)


@nouns.command("list")
@nouns.command("ls", hidden=True)
def list_brokers(
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """List brokers and their replicas, including brokers out of service (also: ls)."""
    show(with_cluster(brokers, settings, _broker_rows), COLUMNS, form)


@nouns.command("drain")
def drain_broker(
    broker: BrokerId,
    to: To = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    throttle: Throttle = None,
    wait: Wait = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Move every replica off a broker, to the least loaded of the others, after asking."""
    consent = Consent(yes, dry_run)
    targets = parse_brokers(to, "--to") if to else None
    how = How(dry_run, wait or throttle is not None, throttle, form)

    async def work(view: ClusterView) -> None:
        admin = AsyncAdmin.over(view)
        picture = await take_picture(admin)
        plan = _drain_plan(picture, broker, targets)
        moved = f"move {counted(len(plan), 'replica')} off broker {broker}"
        await confirm(view, [moved] if plan else [], consent)
        await carry_out(admin, picture, plan, how)
        if how.waits and not dry_run and (left := await _replica_count(admin, broker)):
            raise CommandError(
                f"broker {broker} has been given {left} more replicas meanwhile: drain it again"
            )

    with_cluster(brokers, settings, work, ImpossiblePlanError)


@nouns.command("remove")
@nouns.command("rm", hidden=True)
def remove(
    broker: BrokerId,
    yes: Yes = False,
    dry_run: DryRun = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
) -> None:
    """Unregister a stopped broker that has no replicas, after asking (also: rm)."""
    consent = Consent(yes, dry_run)

    async def work(view: ClusterView) -> None:
        admin = AsyncAdmin.over(view)
        if kept := await _replica_count(admin, broker):
            raise CommandError(
                f"broker {broker} keeps {kept} replicas: `ottla broker drain {broker}` moves them"
            )
        if broker in {row.broker_id for row in (await admin.cluster.describe()).brokers}:
            raise CommandError(f"broker {broker} is in service: stop it first")
        if await confirm(view, [f"remove broker {broker} from the cluster"], consent):
            await admin.cluster.unregister_broker(broker)

    with_cluster(brokers, settings, work)


def _drain_plan(picture: Picture, broker: int, targets: list[int] | None) -> Plan:
    if (
        all(row.broker_id != broker for row in picture.brokers)
        and not loads(picture.current)[broker]
    ):
        raise CommandError(
            f"there is no broker {broker}: `ottla broker list` shows the registered brokers"
        )
    others = [site for site in picture.sites if site.broker_id != broker]
    if targets is not None:
        picture.sites_of(targets)
    return drain(picture.current, broker, others, targets)


async def _replica_count(admin: AsyncAdmin, broker: int) -> int:
    """Count the replicas of a broker, including those being added or removed."""
    return sum(broker in row.replicas for row in await admin.partitions.describe())


async def _broker_rows(view: ClusterView) -> list[Row]:
    admin = AsyncAdmin.over(view)
    described = await admin.partitions.describe()
    known = {
        row.broker_id: row for row in (await admin.cluster.describe(include_fenced=True)).brokers
    }
    replicas = loads({row.name: row.replicas for row in described})
    bytes_by_broker = await sizes_by_broker(admin, known)
    rows: list[Row] = []
    for broker_id in sorted({*known, *replicas}):
        # An unregistered broker with replicas was already offline when the controller started.
        broker = known.get(broker_id) or BrokerDescription(broker_id, "", 0, None, is_fenced=True)
        sizes = bytes_by_broker.get(broker_id)
        rows.append(
            {
                "ID": broker_id,
                "HOST": broker.host or None,
                "PORT": broker.port or None,
                "RACK": broker.rack,
                "FENCED": broker.is_fenced,
                "LEADERS": sum(row.leader == broker_id for row in described),
                "REPLICAS": replicas[broker_id],
                "BYTES": None if sizes is None else sizes.total(),
            }
        )
    return rows
