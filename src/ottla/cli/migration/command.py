"""`ottla migrate`: checks a Kafka cluster before Ottla's brokers replace its brokers."""

from typing import Annotated, Final

import typer

from ottla.cli.migration.finding import Finding, Severity
from ottla.cli.migration.findings import findings
from ottla.cli.migration.reading import read_facts
from ottla.cli.support.exit_codes import FAILURE, WRONG_CALL, CommandError, say
from ottla.cli.support.options import DEFAULT_BROKERS, Brokers, Format, Settings, with_cluster
from ottla.cli.support.output import OutputFormat, Row, show

NAMES_MAX: Final = 5
"""The names of one finding that a table shows; JSON has all."""
COLUMNS = ("SEVERITY", "SUBJECT", "NAMES", "FINDING")
migrations = typer.Typer(no_args_is_help=True)


class UnreadClusterError(CommandError):
    """Ends the check of a cluster that could not be read."""

    code = WRONG_CALL


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the noun and its verbs to the application."""
    app.add_typer(migrations, name=name, help=summary)


@migrations.callback()
def _nouns() -> None:
    """Keep `check` a verb although it is the only one."""


@migrations.command("check")
def check(
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """List the obstacles before Ottla's brokers replace a Kafka cluster's; change nothing.

    An obstacle must be removed first; a note is a difference to know. Each ends with its remedy.
    Security, tiered storage, plug-ins in Java, features, groups and old records are looked at. The
    exit code is 0 without obstacles, 1 with obstacles, 2 if the cluster could not be read.
    """
    try:
        facts = with_cluster(brokers, settings, read_facts)
    except CommandError as error:
        raise UnreadClusterError(str(error)) from None
    found = findings(facts)
    shown = OutputFormat.JSON if as_json else form
    show([_row(one, shown) for one in found], COLUMNS, shown)
    count = sum(one.severity is Severity.OBSTACLE for one in found)
    say(f"{count or 'no'} obstacle{'' if count == 1 else 's'} on {len(facts.nodes)} nodes")
    if count:
        raise SystemExit(FAILURE)


def _row(found: Finding, form: OutputFormat) -> Row:
    names = list(found.names)
    if form is OutputFormat.TABLE and len(names) > NAMES_MAX:
        names = [*names[:NAMES_MAX], f"+{len(names) - NAMES_MAX}"]
    return {
        "SEVERITY": found.severity.value,
        "SUBJECT": found.subject.value,
        "NAMES": names,
        "FINDING": found.text,
    }
