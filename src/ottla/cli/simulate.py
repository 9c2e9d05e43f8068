"""`ottla simulate`: runs of a simulated cluster, each of which can be had again by its seed."""

import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Final

import typer

from ottla.cli.exits import CommandError, WrongCallError, say
from ottla.cli.options import Format
from ottla.cli.output import OutputFormat, Row, show, show_one
from ottla.simulation import one_broker
from ottla.simulation.history import Outcome
from ottla.simulation.report import Report

COLUMNS: Final = ("SEED", "SECONDS", "STEPS", "OK", "UNKNOWN", "READ", "FAULTS", "VIOLATIONS")
VIOLATIONS_SHOWN: Final = 20


class Story(StrEnum):
    """What is simulated."""

    ONE_BROKER = "one-broker"


RUN_BY_STORY: Final[dict[Story, Callable[..., Report]]] = {Story.ONE_BROKER: one_broker.run}


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, help=summary)(simulate)


def simulate(
    seed: Annotated[int | None, typer.Option(help="Run this one, and tell more about it.")] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="A:B", help="Run all from A up to, without, B.")
    ] = None,
    story: Annotated[Story, typer.Option(help="What is simulated.")] = Story.ONE_BROKER,
    seconds: Annotated[
        float, typer.Option(min=0, help="How long faults happen, in simulated seconds.")
    ] = one_broker.SECONDS,
    lines: Annotated[
        int, typer.Option(min=0, help="With --seed: how many of the last events to show.")
    ] = 0,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Simulate; the shell is told 1 if anything came out that must not be."""
    if (seed is None) == (seeds is None):
        raise WrongCallError("give --seed for one run, or --seeds for several")
    run = RUN_BY_STORY[story]
    if seeds is not None:
        reports = [_checked(run(one, seconds=seconds)) for one in _range(seeds)]
        show([_row(report) for report in reports], COLUMNS, form)
    else:
        reports = [run(seed, seconds=seconds, keeps_lines=True)]
        _tell(reports[0], lines, form)
    failed = [str(report.seed) for report in reports if report.violations]
    if failed:
        raise CommandError(f"violations with seed {', '.join(failed)}")


def _range(text: str) -> range:
    first, colon, end = text.partition(":")
    if not colon or not first.isascii() or not (first + end).isdecimal():
        raise WrongCallError(f"{text!r} is no range of seeds: expected A:B, as in 0:100")
    return range(int(first), int(end))


def _checked(report: Report) -> Report:
    """Say at once what is wrong: it may be long until all are through."""
    for violation in report.violations[:VIOLATIONS_SHOWN]:
        say(f"seed {report.seed}: {violation}")
    return report


def _row(report: Report) -> Row:
    return {
        "SEED": report.seed,
        "SECONDS": round(report.simulated_seconds),
        "STEPS": report.steps,
        "OK": report.sent.get(Outcome.OK, 0),
        "UNKNOWN": report.sent.get(Outcome.UNKNOWN, 0),
        "READ": report.read_count,
        "FAULTS": sum(report.faults.values()),
        "VIOLATIONS": len(report.violations),
    }


def _tell(report: Report, lines: int, form: OutputFormat) -> None:
    faults = [f"{name}: {count}" for name, count in report.faults.items()]
    show_one({**_row(report), "FAULTS": faults, "DIGEST": report.digest}, form)
    if form is OutputFormat.TABLE:
        told = [*report.news, *(report.lines[-lines:] if lines else [])]
        sys.stdout.writelines(f"{line}\n" for line in told)
    _checked(report)
