"""A checker that finds nothing proves nothing: so it runs against known bugs.

Each mutant is found by chance within a number of seeds, or by a scenario made for it. The table
says how many seeds it took, and how many are allowed; a change that makes a mutant harder to find
has to be noted here.

Some have tests of their own: a failed sync that is tried again (`test_failed_sync.py`), requests
that wait at a leader with an expired lease (`test_waiting_in_doubt.py`), responses of a past epoch
(`tests/unit/broker/replication/test_replica_fetch_state.py`: in a run it would take three elections
while one response is in flight).

Not visible here, since a second rule prevents the damage:

* A broker that believes a controller of a lower epoch. It reads the controller's address from
ZooKeeper, with a watch, and the pull ends with the watch; a term is over before its broker can win
another. So a broker that knows a later controller never gets a response from an earlier one.
* A term that continues when the session is lost. Every commit checks the epoch in ZooKeeper, and
the first failed check ends the term (`writing_without_the_epoch`, `deciding_on_...`).
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.simulation.faults.cluster_nemesis import Trouble
from ottla.simulation.faults.nemesis import Fault
from ottla.simulation.stories import scenario
from ottla.simulation.stories.cluster_story import Setting, run
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
STOPPED = replace(RESTLESS, kinds=(Fault.STOP, Fault.POWER))
DARK = replace(RESTLESS, pace_seconds=0.3, kinds=(Fault.KILL, Fault.POWER))
ROLLED = replace(
    RESTLESS,
    kinds=(Fault.KILL, Fault.POWER),
    settings=(("log.roll.ms", "1000"), ("log.flush.offset.checkpoint.interval.ms", "500")),
)


class Found(NamedTuple):
    """How many seeds it took, how many it may take, and the rules one of which finds it."""

    seeds: int
    budget: int
    rules: tuple[str, ...]
    setting: Setting = RESTLESS

    @property
    def order(self) -> list[int]:
        """The seeds of the budget; the seed that found it is the first."""
        return sorted(range(self.budget), key=lambda seed: seed != self.seeds - 1)


BY_CHANCE = {
    "truncating_to_the_high_watermark": Found(1, 3, ("R11",)),
    "not_comparing_logs": Found(3, 3, ("R1", "R2", "R3")),
    "not_noting_epochs": Found(2, 3, ("R1", "R2", "R3", "R11")),
    "committing_on_what_is_only_proposed": Found(1, 3, ("R4", "R6", "R7")),
    "forgetting_who_was_proposed": Found(1, 3, ("R4", "R6")),
    "committing_with_too_few": Found(2, 3, ("R7",)),
    "trusting_who_has_lost_its_tail": Found(4, 6, ("R4",), DARK),
    "leading_on_without_a_session": Found(1, 3, ("R1", "R9")),
    "registering_without_stepping_down": Found(1, 3, ("R1", "R9")),
    "writing_without_the_epoch": Found(1, 2, ("M10",)),
    "leaving_the_fenced_in_sync": Found(1, 3, ("R9",)),
    "keeping_who_may_lead": Found(1, 3, ("R9",)),
    "keeping_the_mark_of_a_clean_stop": Found(2, 4, ("R4", "D2"), STOPPED),
    "noting_what_is_not_flushed": Found(1, 3, ("D2",), ROLLED),
}
BY_STORY = {
    "counting_fetches_of_any_epoch": ("kip-320-old-epoch", ("R7",)),
    "letting_an_earlier_life_in": ("kip-903-another-life", ("R4",)),
    "deciding_on_whatever_zookeeper_says": ("commit-in-doubt", ("R2", "R3", "R4", "R6")),
    "trusting_the_first_larger_epoch": ("kip-279-two-fast-elections", ("R1", "R3")),
    "joining_at_the_high_watermark": ("kafka-7128-incomplete-follower", ("R4",)),
}


@pytest.mark.parametrize("mutant", BY_CHANCE)
def test_what_was_once_wrong_is_found_by_chance(mutant: str) -> None:
    found_by = BY_CHANCE[mutant]
    with MUTANTS[mutant]():
        reports = (run(seed, seconds=SECONDS, setting=found_by.setting) for seed in found_by.order)
        found = (one.invariant.rstrip(":") for report in reports for one in report.violations)
        assert any(one in found_by.rules for one in found)


@pytest.mark.parametrize(
    "setting", [RESTLESS, STOPPED, DARK, ROLLED], ids=["all", "stops", "darkness", "rolls"]
)
def test_without_mutants_the_same_seeds_are_well(setting: Setting) -> None:
    for seed in {one.seeds - 1 for one in BY_CHANCE.values() if one.setting is setting}:
        assert not run(seed, seconds=SECONDS, setting=setting).violations


@pytest.mark.parametrize("mutant", BY_STORY)
def test_what_was_once_wrong_is_found_by_its_story(mutant: str) -> None:
    name, rules = BY_STORY[mutant]
    path = Path(__file__).parent / "scenarios" / f"{name}.toml"
    with MUTANTS[mutant]():
        found, *_ = scenario.run(scenario.parse(path.read_text(encoding="utf-8"))).violations
    assert found.invariant.rstrip(":") in rules
