"""Three brokers replicate under a controller that never fails; nothing acknowledged is lost.

All replicas are checked after every step of a run (`replica_rules`), and the clients' histories at
its end (`checkers`). Metadata arrives late here, or not at all, which ZooKeeper would not allow.
"""

import pytest

from ottla.simulation.checks.history import Outcome
from tests.simulation.replicated_story import run

SEEDS = range(4)
SECONDS = 6.0


@pytest.mark.parametrize("seed", SEEDS)
def test_no_record_is_lost_and_only_committed_records_are_visible(seed: int) -> None:
    report = run(seed, seconds=SECONDS, is_flushed=seed % 2 == 1)
    assert not report.violations
    assert report.sent[Outcome.OK] > 50
    assert report.read_count >= report.sent[Outcome.OK]


def test_the_same_seed_is_the_same_run() -> None:
    assert run(9, seconds=2.0).digest == run(9, seconds=2.0).digest
