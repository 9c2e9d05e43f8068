"""The result of a simulation."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.simulation.checks.checkers import Violation
from ottla.simulation.checks.history import History, Outcome
from ottla.simulation.world.world import World


@dataclass(frozen=True, slots=True)
class Report:
    """The counts of a run, and its violations."""

    seed: int
    digest: str
    """Equal for equal runs, in any process."""
    simulated_seconds: float
    steps: int
    setting: object
    """The parameters of the run."""
    faults: Mapping[str, int]
    """Faults and their counts."""
    sent: Mapping[Outcome, int]
    """The number of sent values by outcome."""
    read_count: int
    committed_count: int
    violations: list[Violation]
    news: list[str]
    """Faults and log lines, if they were to be kept."""
    lines: list[str]
    """Every event, if they were to be kept."""


def report_of(
    world: World,
    history: History,
    *,
    setting: object,
    faults: Mapping[str, int],
    violations: list[Violation],
) -> Report:
    """Build the report of a finished world."""
    return Report(
        seed=world.seed,
        digest=world.trace.digest(),
        simulated_seconds=world.loop.time(),
        steps=world.loop.steps,
        setting=setting,
        faults=faults,
        sent=Counter(one.outcome for one in history.operations for _ in one.sent),
        read_count=sum(len(one.read) for one in history.operations),
        committed_count=sum(one.outcome is Outcome.OK for one in history.commits),
        violations=violations,
        news=world.trace.news,
        lines=world.trace.lines,
    )
