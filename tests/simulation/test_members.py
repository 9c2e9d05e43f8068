"""Members of a group that die, pause and are cut off, with each protocol; and broken members."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

import pytest

from ottla.clients.consumer.group.membership_machine import MembershipMachine, MemberState
from ottla.simulation.faults.nemesis import Fault
from ottla.simulation.stories.one_broker_story import Setting, run
from ottla.simulation.stories.report import Report
from tests.examples import some
from tests.simulation.member_mutants import (
    assigning_a_partition_to_every_member,
    keeping_partitions_after_a_removal,
    keeping_partitions_that_the_assignment_lacks,
)
from tests.simulation.mutants import patched

FAULTS = (Fault.KILL, Fault.PAUSE, Fault.PARTITION, Fault.ONE_WAY)
FIRST_SEED = 2
COOPERATIVE = ("cooperative-sticky",)
EAGER = ("range",)
SECONDS = 60
S = MemberState


def with_members(seed: int, strategy: tuple[str, ...], *, is_static: bool) -> Report:
    setting = Setting(4, 1, 0.001, FAULTS, {}, 3, strategy, is_static)
    return run(seed, seconds=SECONDS, setting=setting)


def counting(moves: Counter[tuple[MemberState, MemberState]]) -> AbstractContextManager[None]:
    move = MembershipMachine._move

    def count(self: MembershipMachine, state: MemberState) -> None:
        moves[self.state, state] += 1
        move(self, state)

    return patched(MembershipMachine, "_move", count)


@pytest.mark.parametrize("seed", some(range(FIRST_SEED, FIRST_SEED + 2), 1))
@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE])
def test_every_record_is_delivered_by_members_that_die_pause_and_are_cut_off(
    strategy: tuple[str, ...], is_static: bool, seed: int
) -> None:
    moves: Counter[tuple[MemberState, MemberState]] = Counter()
    with counting(moves):
        report = with_members(seed, strategy, is_static=is_static)
    assert not report.violations
    assert moves[S.RECONCILING, S.STABLE] > 10
    assert sum(moves[state, S.FENCED] for state in S) > 0


class Found(NamedTuple):
    """The number of seeds that it took, the limit, and the rule that finds it."""

    seeds: int
    budget: int
    rule: str


Mutant = Callable[[], AbstractContextManager[None]]
FOUND: dict[Mutant, Found] = {
    keeping_partitions_after_a_removal: Found(1, 3, "G7"),
    keeping_partitions_that_the_assignment_lacks: Found(1, 3, "G7"),
    assigning_a_partition_to_every_member: Found(1, 3, "G6"),
}


@pytest.mark.parametrize("mutant", FOUND)
def test_a_broken_member_is_found(mutant: Mutant) -> None:
    _, budget, rule = FOUND[mutant]
    with mutant():
        reports = (
            with_members(seed, COOPERATIVE, is_static=False)
            for seed in range(FIRST_SEED, FIRST_SEED + budget)
        )
        found = next((one.violations for one in reports if one.violations), [])
    assert any(one.invariant.startswith(rule) for one in found)
