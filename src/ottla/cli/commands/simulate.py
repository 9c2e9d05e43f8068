"""`ottla simulate`: runs of a simulated cluster, each reproducible by its seed."""

import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from ottla.cli.support.exit_codes import CommandError, WrongCallError, say
from ottla.cli.support.options import Format
from ottla.cli.support.output import OutputFormat, Row, show, show_one
from ottla.runtime.clock import SystemClock
from ottla.simulation.checks.history import Outcome
from ottla.simulation.quorum import story as quorum_story
from ottla.simulation.stories import cluster_story, one_broker_story, scenario
from ottla.simulation.stories.report import Report

COLUMNS: Final = (
    "SEED", "SECONDS", "SPEED", "STEPS", "OK", "UNKNOWN", "READ", "FAULTS", "VIOLATIONS",
)  # fmt: skip
VIOLATIONS_SHOWN: Final = 20
RUNS_IN_A_PROCESS_MAX: Final = 10
"""Each run leaves tens of megabytes of unfinished client tasks behind."""
QUORUM_RUNS_IN_A_PROCESS: Final = 500
"""A run of the quorum leaves nothing behind, and is over in a tenth of a second."""


class Story(StrEnum):
    """The kinds of simulations."""

    ONE_BROKER = "one-broker"
    CLUSTER = "cluster"
    QUORUM = "quorum"
    REGISTRY = "registry"


def _run_registry(seed: int, **options: Any) -> Report:
    """Import the registry, which needs an extra, only for its own story."""
    from ottla.registry.server import INSTALL, missing_packages  # noqa: PLC0415

    missing = missing_packages()
    if missing:
        raise CommandError(f"the story of the registry needs {missing[0]}: {INSTALL}")
    from ottla.simulation.registry.registry_story import run  # noqa: PLC0415

    return run(seed, **options)


RUN_BY_STORY: Final[dict[Story, Callable[..., Report]]] = {
    Story.ONE_BROKER: one_broker_story.run,
    Story.CLUSTER: cluster_story.run,
    Story.QUORUM: quorum_story.run,
    Story.REGISTRY: _run_registry,
}
SECONDS_BY_STORY: Final = {
    Story.ONE_BROKER: one_broker_story.SECONDS,
    Story.CLUSTER: cluster_story.SECONDS,
    Story.QUORUM: quorum_story.SECONDS,
    Story.REGISTRY: cluster_story.SECONDS,
}


class Timed(NamedTuple):
    """The report of a run, and its simulated seconds per second."""

    report: Report
    speed: float


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, help=summary)(simulate)


def simulate(
    seed: Annotated[int | None, typer.Option(help="Run only this seed, with details.")] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="A:B", help="Run the seeds A to B, without B.")
    ] = None,
    story: Annotated[Story, typer.Option(help="The simulated scenario.")] = Story.ONE_BROKER,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="How long faults happen, in simulated seconds.")
    ] = None,
    brokers: Annotated[
        int, typer.Option(min=3, max=5, help="Number of brokers in a cluster.")
    ] = cluster_story.BROKERS,
    scenario_file: Annotated[
        Path | None, typer.Option("--scenario", help="Run the scenario of this file instead.")
    ] = None,
    lines: Annotated[
        int, typer.Option(min=0, help="With --seed: how many of the last events to show.")
    ] = 0,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Simulate a cluster; exits with 1 if a run violates an invariant."""
    seconds = SECONDS_BY_STORY[story] if seconds is None else seconds
    run = partial(RUN_BY_STORY[story], seconds=seconds)
    if scenario_file is not None:
        told = _scenario(scenario_file)
        run = partial(scenario.run, told)
        seed = told.seed if seed is None and seeds is None else seed
    elif story in {Story.CLUSTER, Story.REGISTRY}:
        run = partial(run, brokers=brokers)
    if (seed is None) == (seeds is None):
        raise WrongCallError("give --seed for one run, or --seeds for several")
    if seeds is not None:
        is_quorum = story is Story.QUORUM and scenario_file is None
        count = QUORUM_RUNS_IN_A_PROCESS if is_quorum else RUNS_IN_A_PROCESS_MAX
        runs = _run_all(run, _range(seeds), count)
        show([_row(one) for one in runs], COLUMNS, form)
    else:
        assert seed is not None
        runs = [_timed(partial(run, keeps_lines=True), seed)]
        _print_result(runs[0], lines, form)
    failed = [str(one.report.seed) for one in runs if one.report.violations]
    if failed:
        raise CommandError(f"violations with seed {', '.join(failed)}")


def _range(text: str) -> range:
    first, colon, end = text.partition(":")
    if not colon or not first.isascii() or not (first + end).isdecimal():
        raise WrongCallError(f"{text!r} is no range of seeds: expected A:B, as in 0:100")
    return range(int(first), int(end))


def _scenario(path: Path) -> scenario.Scenario:
    try:
        return scenario.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WrongCallError(f"{path}: {error}") from error


def _run_all(run: Callable[..., Report], seeds: Iterable[int], count: int) -> list[Timed]:
    """Run simulations in parallel, on all cores."""
    processes = get_context("spawn")
    with processes.Pool(maxtasksperchild=count) as pool:
        return [_checked(one) for one in pool.imap(partial(_timed, run), seeds)]


def _timed(run: Callable[..., Report], seed: int) -> Timed:
    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    report = run(seed)
    passed = max(clock.monotonic_ns() - began_ns, 1) / 1e9
    return Timed(report, report.simulated_seconds / passed)


def _checked(timed: Timed) -> Timed:
    """Print violations at once: the other runs may take long."""
    report = timed.report
    for violation in report.violations[:VIOLATIONS_SHOWN]:
        say(f"seed {report.seed}: {violation}")
    return timed


def _row(timed: Timed) -> Row:
    report = timed.report
    return {
        "SEED": report.seed,
        "SECONDS": round(report.simulated_seconds),
        "SPEED": round(timed.speed, 1),
        "STEPS": report.steps,
        "OK": report.sent.get(Outcome.OK, 0),
        "UNKNOWN": report.sent.get(Outcome.UNKNOWN, 0),
        "READ": report.read_count,
        "FAULTS": sum(report.faults.values()),
        "VIOLATIONS": len(report.violations),
    }


def _print_result(timed: Timed, lines: int, form: OutputFormat) -> None:
    report = timed.report
    faults = [f"{name}: {count}" for name, count in report.faults.items()]
    show_one({**_row(timed), "FAULTS": faults, "DIGEST": report.digest}, form)
    if form is OutputFormat.TABLE:
        told = [*report.news, *(report.lines[-lines:] if lines else [])]
        sys.stdout.writelines(f"{line}\n" for line in told)
    _checked(timed)
