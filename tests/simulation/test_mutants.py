"""A checker that finds nothing proves nothing: so it is shown what was once wrong.

Each mutant is found by chance within so many seeds, or by the one story that was made for it. The
table says what it took, and what is allowed; who makes a mutant harder to find has to say so here.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.simulation import scenario
from ottla.simulation.cluster import Setting, run
from ottla.simulation.cluster_nemesis import Trouble
from ottla.simulation.nemesis import Fault
from tests.simulation.mutants import MUTANTS

SECONDS = 15.0
RESTLESS = Setting(
    partitions=1,
    members=0,
    has_operator=False,
    pace_seconds=0.5,
    kinds=(
        Fault.KILL,
        Fault.PAUSE,
        Fault.PARTITION,
        Fault.ONE_WAY,
        Fault.POWER,
        Trouble.SLOW_LINK,
        Trouble.EXPIRY,
        Trouble.ZOOKEEPER_CUT,
    ),
)


class Found(NamedTuple):
    """How many seeds it took, how many it may take, and the rules one of which finds it."""

    seeds: int
    budget: int
    rules: tuple[str, ...]


BY_CHANCE = {
    "truncating_to_the_high_watermark": Found(1, 3, ("R11",)),
    "not_comparing_logs": Found(1, 3, ("R1", "R2", "R3")),
    "committing_on_what_is_only_proposed": Found(1, 3, ("R4", "R6", "R7")),
    "forgetting_who_was_proposed": Found(1, 3, ("R4", "R6")),
    "committing_with_too_few": Found(1, 3, ("R7",)),
    "trusting_who_has_lost_its_tail": Found(2, 4, ("R4",)),
    "leading_on_without_a_session": Found(1, 3, ("R1", "R9")),
    "registering_without_stepping_down": Found(1, 3, ("R1", "R9")),
    "writing_without_the_epoch": Found(1, 2, ("M10",)),
}
BY_STORY = {
    "trusting_the_first_larger_epoch": ("kip-279-two-fast-elections", "R3"),
    "joining_at_the_high_watermark": ("kafka-7128-incomplete-follower", "R4"),
}


@pytest.mark.parametrize("mutant", BY_CHANCE)
def test_what_was_once_wrong_is_found_by_chance(mutant: str) -> None:
    _, budget, rules = BY_CHANCE[mutant]
    with MUTANTS[mutant]():
        reports = (run(seed, seconds=SECONDS, setting=RESTLESS) for seed in range(budget))
        found = next((one.violations[0] for one in reports if one.violations), None)
    assert found is not None
    assert found.invariant.rstrip(":") in rules


def test_without_mutants_the_same_seeds_are_well() -> None:
    for seed in range(max(found.budget for found in BY_CHANCE.values())):
        assert not run(seed, seconds=SECONDS, setting=RESTLESS).violations


@pytest.mark.parametrize("mutant", BY_STORY)
def test_what_was_once_wrong_is_found_by_its_story(mutant: str) -> None:
    name, rule = BY_STORY[mutant]
    path = Path(__file__).parent / "scenarios" / f"{name}.toml"
    with MUTANTS[mutant]():
        found, *_ = scenario.run(scenario.parse(path.read_text(encoding="utf-8"))).violations
    assert found.invariant.rstrip(":") == rule
