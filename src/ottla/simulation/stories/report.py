"""What came of a simulation, for whoever has run it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.simulation.checks.checkers import Violation
from ottla.simulation.checks.history import History, Outcome
from ottla.simulation.world.world import World


@dataclass(frozen=True, slots=True)
class Report:
    """A run, in numbers, and what was wrong with it."""

    seed: int
    digest: str
    """Equal for equal runs, in any process."""
    simulated_seconds: float
    steps: int
    setting: object
    """What the run was like."""
    faults: Mapping[str, int]
    """What happened, and how often."""
    sent: Mapping[Outcome, int]
    """How many values were sent, and what became of them."""
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
    """Gather what is to be told of a world that has come to its end."""
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
