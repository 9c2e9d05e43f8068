"""Three brokers replicate, and whatever happens to them nothing is lost that was acknowledged.

After every step of a run all replicas are looked at (`replicas.py`), at its end what clients have
seen (`checkers.py`). A checker that finds nothing proves nothing: so it is shown what replication
was like before it was right (`mutants.py`).
"""

import pytest

from ottla.simulation.history import Outcome
from tests.simulation.mutants import MUTANTS
from tests.simulation.replicas import InvariantError
from tests.simulation.replicated_story import leader_dies_as_the_isr_has_shrunk, run

SEEDS = range(4)
SECONDS = 6.0
SEEDS_TO_FIND = 20
"""So many seeds have to be enough to find what is wrong, of fifteen simulated seconds each."""
FOUND_BY_CHANCE = sorted(MUTANTS.keys() - {"joining_at_the_high_watermark"})


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_and_nobody_sees_what_is_not_committed(seed: int) -> None:
    report = run(seed, seconds=SECONDS, is_flushed=seed % 2 == 1)
    assert not report.violations
    assert report.sent[Outcome.OK] > 50
    assert report.read_count >= report.sent[Outcome.OK]


def test_the_same_seed_is_the_same_run() -> None:
    assert run(9, seconds=2.0).digest == run(9, seconds=2.0).digest


def found_by(seed: int) -> bool:
    try:
        return bool(run(seed, seconds=15.0).violations)
    except InvariantError:
        return True


@pytest.mark.parametrize("mutant", FOUND_BY_CHANCE)
def test_what_was_once_wrong_is_found_out(mutant: str) -> None:
    with MUTANTS[mutant]():
        assert any(map(found_by, range(SEEDS_TO_FIND)))


def test_a_successor_does_not_let_in_who_lacks_what_was_committed() -> None:
    assert not run(1, leader_dies_as_the_isr_has_shrunk).violations
    with MUTANTS["joining_at_the_high_watermark"](), pytest.raises(InvariantError, match="R4"):
        run(1, leader_dies_as_the_isr_has_shrunk)
