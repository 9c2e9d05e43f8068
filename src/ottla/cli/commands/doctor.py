"""`ottla doctor`: checks this machine and this installation for missing requirements."""

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.support.checks import (
    Finding,
    Verdict,
    check_data_dir,
    check_installation,
    check_open_files,
)
from ottla.cli.support.exit_codes import FAILURE, CommandError
from ottla.cli.support.options import Format, Settings, with_cluster
from ottla.cli.support.output import OutputFormat, show
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView

COLUMNS = ("STATUS", "CHECK", "FINDING")
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--brokers",
        "-b",
        "--bootstrap-server",
        envvar="OTTLA_BROKERS",
        metavar="HOST:PORT,…",
        help="A cluster to try to reach.",
    ),
]


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, help=f"{summary}\n\n{DETAILS}")(doctor)


DETAILS = """Looks at Python, the compiled loops, the codecs, the extras, the limit of open files
and the folder of a broker. With --brokers, tries to reach a cluster. Each line is ok, a
warning or an error, and says what to do. The exit code is 1 if there is an error.
"""


def doctor(
    data_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder that a broker is to use.")
    ] = Path("ottla-data"),
    brokers: Bootstrap = None,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Check this machine and this installation."""
    findings = [
        *check_installation(),
        check_open_files(),
        *check_data_dir(data_dir.absolute()),
    ]
    if brokers:
        findings.append(check_cluster(brokers, settings))
    rows = [
        {"STATUS": found.verdict.value, "CHECK": found.check, "FINDING": found.text}
        for found in findings
    ]
    show(rows, COLUMNS, form)
    if any(found.verdict is Verdict.ERROR for found in findings):
        raise SystemExit(FAILURE)


def check_cluster(brokers: str, settings: list[str] | None) -> Finding:
    """Check that a cluster responds, and report its id and its brokers."""

    async def work(view: ClusterView) -> str:
        found = await AsyncAdmin.over(view).cluster.describe()
        ids = ", ".join(str(row.broker_id) for row in found.brokers)
        return f"cluster {found.cluster_id} at {brokers}: brokers {ids}"

    try:
        return Finding("cluster", Verdict.OK, with_cluster(brokers, settings, work))
    except CommandError as error:
        return Finding("cluster", Verdict.ERROR, str(error))
