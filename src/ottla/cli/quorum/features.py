"""`ottla cluster features`: the features of a cluster and their levels."""

from typing import Annotated, Final

import typer

from ottla.cli.quorum.node_formatting import parse_levels
from ottla.cli.support.exit_codes import WrongCallError, say
from ottla.cli.support.options import DEFAULT_BROKERS, Brokers, Format, Settings, with_cluster
from ottla.cli.support.output import OutputFormat, Row, show
from ottla.clients.admin.admin_cluster import FeatureDescription, FeatureUpdateType
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView

COLUMNS: Final = ("FEATURE", "LEVEL", "MIN", "MAX")

Upgrade = Annotated[
    list[str] | None,
    typer.Option("--upgrade", metavar="NAME=LEVEL", help="Raise a level. Repeatable."),
]
Downgrade = Annotated[
    list[str] | None,
    typer.Option("--downgrade", metavar="NAME=LEVEL", help="Lower a level. Repeatable."),
]
Unsafe = Annotated[bool, typer.Option("--unsafe", help="Allow a downgrade that loses metadata.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only check the change.")]


def features(
    upgrade: Upgrade = None,
    downgrade: Downgrade = None,
    unsafe: Unsafe = False,
    dry_run: DryRun = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Show the level of each feature and the levels that the cluster supports, or change levels.

    All given levels change, or none. Level 0 turns a feature off.
    """
    levels = _levels(upgrade, downgrade, unsafe=unsafe, dry_run=dry_run)
    kind = FeatureUpdateType.UPGRADE
    if downgrade:
        kind = FeatureUpdateType.UNSAFE_DOWNGRADE if unsafe else FeatureUpdateType.SAFE_DOWNGRADE

    async def work(view: ClusterView) -> FeatureDescription:
        cluster = AsyncAdmin.over(view).cluster
        if levels:
            await cluster.update_features(levels, allow=kind, validate_only=dry_run)
        return await cluster.features()

    found = with_cluster(brokers, settings, work)
    if dry_run:
        say("the change is possible; nothing was changed")
    show(_rows(found), COLUMNS, form)


def _levels(
    upgrade: list[str] | None, downgrade: list[str] | None, *, unsafe: bool, dry_run: bool
) -> dict[str, int]:
    if upgrade and downgrade:
        raise WrongCallError(
            "give --upgrade or --downgrade, not both: one request does one of them"
        )
    if unsafe and not downgrade:
        raise WrongCallError("--unsafe is only for --downgrade")
    if dry_run and not (upgrade or downgrade):
        raise WrongCallError("--dry-run is only for --upgrade and --downgrade")
    if upgrade:
        return parse_levels(upgrade, "--upgrade")
    return parse_levels(downgrade or (), "--downgrade")


def _rows(found: FeatureDescription) -> list[Row]:
    rows: list[Row] = []
    for name in sorted(found.supported.keys() | found.finalized.keys()):
        supported = found.supported.get(name)
        rows.append(
            {
                "FEATURE": name,
                "LEVEL": found.finalized.get(name, 0),
                "MIN": supported and supported.first,
                "MAX": supported and supported.last,
            }
        )
    return rows
