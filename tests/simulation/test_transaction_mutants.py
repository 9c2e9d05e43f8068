"""The checkers of transactions run against known bugs, as in `test_mutants.py`."""

from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.simulation.faults.cluster_nemesis import Trouble
from ottla.simulation.faults.nemesis import Fault
from ottla.simulation.stories import scenario
from ottla.simulation.stories.cluster_story import Setting, run
from tests.simulation.transaction_mutants import MUTANTS


class Found(NamedTuple):
    """How many seeds it took, how many it may take, and the rules one of which finds it."""

    seeds: int
    budget: int
    rules: tuple[str, ...]

    @property
    def order(self) -> list[int]:
        """The seeds of the budget; the seed that found it is the first."""
        return sorted(range(self.budget), key=lambda seed: seed != self.seeds - 1)


SECONDS = 5.0
RESTLESS = Setting(
    writers=1,
    transactional_ids=2,
    members=0,
    has_operator=False,
    pace_seconds=0.5,
    kinds=(Fault.KILL, Fault.PAUSE, Fault.CLIENT, Trouble.HELD_CONNECTION, Trouble.SLOW_LINK),
)
BY_CHANCE = {
    "ending_without_a_new_epoch": Found(2, 4, ("J4 unseen", "J5 aborted-read", "T6", "T9 copies")),
    "taking_markers_of_the_same_epoch": Found(2, 4, ("T6",)),
    "asking_no_coordinator": Found(1, 1, ("T7",)),
    "trusting_an_answer_from_before_the_end": Found(5, 7, ("T7",)),
    "obeying_whoever_has_the_producer_id": Found(1, 3, ("T7",)),
    "letting_markers_tell_no_time": Found(1, 1, ("T2",)),
    "sending_markers_before_the_end_is_committed": Found(1, 1, ("T5",)),
    "answering_before_the_end_is_committed": Found(1, 1, ("T7",)),
    "letting_readers_see_what_is_open": Found(1, 1, ("T7",)),
    "telling_nobody_what_was_aborted": Found(1, 1, ("J5 aborted-read",)),
}
BY_STORY = {
    "forgetting_markers_at_a_fail_over": ("coordinator-dies-during-a-commit", "L1 stuck"),
}


@pytest.mark.parametrize("mutant", BY_CHANCE)
def test_what_was_once_wrong_with_transactions_is_found_by_chance(mutant: str) -> None:
    found_by = BY_CHANCE[mutant]
    with MUTANTS[mutant]():
        reports = (run(seed, seconds=SECONDS, setting=RESTLESS) for seed in found_by.order)
        found = next((one.violations for one in reports if one.violations), [])
    assert any(one.invariant.rstrip(":") in found_by.rules for one in found)


@pytest.mark.parametrize("mutant", BY_STORY)
def test_what_was_once_wrong_with_transactions_is_found_by_its_story(mutant: str) -> None:
    name, rule = BY_STORY[mutant]
    path = Path(__file__).parent / "scenarios" / f"{name}.toml"
    with MUTANTS[mutant]():
        found = scenario.run(scenario.parse(path.read_text(encoding="utf-8"))).violations
    assert [one.invariant for one in found] == [rule]


def test_without_mutants_the_same_transactions_are_well() -> None:
    for seed in range(2):
        assert not run(seed, seconds=SECONDS, setting=RESTLESS).violations


@pytest.mark.parametrize("habit", ["being_slow_to_append", "expiring_producers_all_the_time"])
def test_what_mutants_need_does_no_harm_by_itself(habit: str) -> None:
    with MUTANTS[habit]():
        assert not run(0, seconds=SECONDS, setting=RESTLESS).violations
