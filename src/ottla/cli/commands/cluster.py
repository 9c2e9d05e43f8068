"""`ottla cluster`: a local cluster, brokers, log dirs and API versions."""

from collections.abc import Collection
from typing import Annotated

import typer

from ottla.cli.quorum.conversion import convert
from ottla.cli.quorum.features import features
from ottla.cli.quorum.migration import migrations
from ottla.cli.support.local_cluster import start, start_broker
from ottla.cli.support.options import (
    DEFAULT_BROKERS,
    Brokers,
    Format,
    Internal,
    Settings,
    internal_topics,
    with_cluster,
)
from ottla.cli.support.output import OutputFormat, Row, json_key, show, show_one
from ottla.clients.admin.admin_cluster import UNKNOWN_BYTES, ClusterDescription
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.admin.cluster_health import ClusterHealth, look_at
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.model.error_code import ErrorCode
from ottla.wire.api_key import ApiKey

BROKER_COLUMNS = (
    "ID",
    "HOST",
    "PORT",
    "RACK",
    "CONTROLLER",
    "LEADERS",
    "REPLICAS",
    "UNDER-REPLICATED",
)
DISK_COLUMNS = ("BROKER", "LOG-DIR", "PARTITIONS", "SIZE-BYTES", "USABLE-BYTES", "STATUS")
REPLICA_COLUMNS = ("BROKER", "LOG-DIR", "TOPIC", "PARTITION", "SIZE-BYTES")
_API_NAME_BY_NUMBER = {key.value: key.name for key in ApiKey}
clusters = typer.Typer(no_args_is_help=True)
clusters.command("start")(start)
clusters.command("start-broker")(start_broker)
clusters.command("features")(features)
clusters.command("convert")(convert)
clusters.add_typer(
    migrations, name="migration", help="The steps of a running cluster from ZooKeeper to a quorum."
)


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the noun and its verbs to the application."""
    app.add_typer(clusters, name=name, help=summary)


@clusters.command("describe")
@clusters.command("info", hidden=True)
def describe(
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Show the brokers, their leaderships and replicas, and the partitions (also: info).

    UNDER-REPLICATED is, for the cluster, the number of partitions with replicas out of sync; for a
    broker, the number of its own replicas out of sync. A broker without a host has replicas and is
    offline.
    """
    described, health = with_cluster(brokers, settings, look_at)
    rows = _broker_rows(described, health)
    summary: dict[str, object] = {
        "CLUSTER-ID": described.cluster_id,
        "CONTROLLER": described.controller_id,
        "HEALTH": health.verdict.value,
        "PARTITIONS": health.partitions,
        "UNDER-REPLICATED": health.under_replicated,
        "OFFLINE": health.offline,
    }
    if form is OutputFormat.JSON:
        summary["BROKERS"] = [{json_key(key): row[key] for key in row} for row in rows]
    show_one(summary, form)
    if form is OutputFormat.TABLE:
        show(rows, BROKER_COLUMNS, form)


@clusters.command("logdirs")
def log_dirs(
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Show every partition instead of every directory.")
    ] = False,
    internal: Internal = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Show the contents of the brokers' log dirs; sums of log dirs count internal topics, too."""

    async def work(view: ClusterView) -> list[Row]:
        admin = AsyncAdmin.over(view)
        if not replicas:
            return await _folder_rows(admin)
        return await _replica_rows(admin, frozenset() if internal else await internal_topics(admin))

    rows = with_cluster(brokers, settings, work)
    show(rows, REPLICA_COLUMNS if replicas else DISK_COLUMNS, form)


@clusters.command("api-versions")
def api_versions(
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Show the request types and versions that a broker supports."""
    found = with_cluster(
        brokers, settings, lambda view: AsyncAdmin.over(view).cluster.versions_by_api()
    )
    rows = [
        {"KEY": key, "API": _API_NAME_BY_NUMBER.get(key), "MIN": first, "MAX": last}
        for key, (first, last) in sorted(found.items())
    ]
    show(rows, ("KEY", "API", "MIN", "MAX"), form)


def _broker_rows(described: ClusterDescription, health: ClusterHealth) -> list[Row]:
    brokers = {row.broker_id: row for row in described.brokers}
    rows: list[Row] = []
    for number in sorted(brokers.keys() | health.replicas_by_broker.keys()):
        found = brokers.get(number)
        values = (
            number,
            found and found.host,
            found and found.port,
            found and found.rack,
            number == described.controller_id,
            health.leaders_by_broker.get(number, 0),
            health.replicas_by_broker.get(number, 0),
            health.behind_by_broker.get(number, 0),
        )
        rows.append(dict(zip(BROKER_COLUMNS, values, strict=True)))
    return rows


async def _replica_rows(admin: AsyncAdmin, hidden: Collection[str]) -> list[Row]:
    return [
        {
            "BROKER": broker_id,
            "LOG-DIR": folder.path,
            "TOPIC": name.topic,
            "PARTITION": name.partition,
            "SIZE-BYTES": size,
        }
        for broker_id, folders in (await admin.cluster.log_dirs()).items()
        for folder in folders
        for name, size in sorted(folder.size_by_partition.items())
        if name.topic not in hidden
    ]


async def _folder_rows(admin: AsyncAdmin) -> list[Row]:
    return [
        {
            "BROKER": broker_id,
            "LOG-DIR": folder.path,
            "PARTITIONS": len(folder.size_by_partition),
            "SIZE-BYTES": sum(folder.size_by_partition.values()),
            "USABLE-BYTES": None if folder.usable_bytes == UNKNOWN_BYTES else folder.usable_bytes,
            "STATUS": "ok" if folder.error is ErrorCode.NONE else folder.error.name,
        }
        for broker_id, folders in (await admin.cluster.log_dirs()).items()
        for folder in folders
    ]
