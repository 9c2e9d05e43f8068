"""The checkers find client bugs, as they find broker bugs (`test_mutants.py`).

Two have stories of their own: a consumer that trusts every new leader (`test_truncated_log.py`),
and a producer that sends ahead of its first batch (`test_first_batches.py`).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

import pytest

from ottla.simulation.faults.nemesis import Fault
from ottla.simulation.stories import cluster_story, one_broker_story
from ottla.simulation.stories.report import Report
from tests.simulation.client_mutants import (
    committing_what_was_only_fetched,
    numbering_anew_what_is_sent_again,
)

BREAKING = one_broker_story.Setting(2, 2, 0.001, (Fault.RESET, Fault.KILL, Fault.ONE_WAY), {})
DYING = cluster_story.Setting(members=2, has_operator=False, kinds=(Fault.CLIENT, Fault.PAUSE))
Mutant = Callable[[], AbstractContextManager[None]]


def with_breaking_connections(seed: int) -> Report:
    return one_broker_story.run(seed, seconds=15, setting=BREAKING)


def with_dying_clients(seed: int) -> Report:
    return cluster_story.run(seed, seconds=10, setting=DYING)


class Found(NamedTuple):
    """How many seeds it took, how many it may take, and the rules one of which finds it."""

    run: Callable[[int], Report]
    seeds: int
    budget: int
    rules: tuple[str, ...]


FOUND: dict[Mutant, Found] = {
    numbering_anew_what_is_sent_again: Found(with_breaking_connections, 2, 6, ("J2", "J9")),
    committing_what_was_only_fetched: Found(with_dying_clients, 1, 3, ("J3", "J8", "L1")),
}


@pytest.mark.parametrize("mutant", FOUND)
def test_a_wrong_client_is_found_out(mutant: Mutant) -> None:
    run, _, budget, rules = FOUND[mutant]
    with mutant():
        reports = (run(seed) for seed in range(budget))
        found = next((one.violations for one in reports if one.violations), [])
    assert any(one.invariant.startswith(rules) for one in found)


@pytest.mark.parametrize("run", [with_breaking_connections, with_dying_clients])
def test_the_right_clients_get_through_the_same(run: Callable[[int], Report]) -> None:
    budget = max(one.budget for one in FOUND.values() if one.run is run)
    assert not [one for seed in range(budget) for one in run(seed).violations]
