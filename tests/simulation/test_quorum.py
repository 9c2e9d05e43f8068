"""A quorum under faults keeps its invariants: Q1 to Q12."""

import pytest

from ottla.simulation.checks.history import Outcome
from ottla.simulation.quorum.replica import Replica
from ottla.simulation.quorum.story import Setting, run
from ottla.simulation.quorum.world import QuorumWorld
from tests.simulation.quorum_scenarios import refuse_malformed_control_records

SEEDS = 40  # `make simulate` runs ten thousand


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_a_quorum_under_faults_keeps_its_invariants(first: int) -> None:
    for seed in range(first, first + 20):
        report = run(seed)
        assert not report.violations, f"seed {seed}"


def test_the_runs_are_worth_something() -> None:
    reports = [run(seed) for seed in range(10_000, 10_010)]
    told = [[int(word) for word in report.news[0].split() if word.isdigit()] for report in reports]
    assert sum(epochs for epochs, _ in told) > 20
    assert sum(voter_sets for _, voter_sets in told) > 20
    assert sum(report.committed_count for report in reports) > 800
    assert sum(report.sent[Outcome.OK] for report in reports) > 500


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (run(3, setting=Setting(), keeps_lines=True) for _ in range(2))
    assert first.lines == second.lines
    assert first.digest == second.digest == run(3, setting=Setting()).digest


def test_a_follower_refuses_malformed_control_records() -> None:
    refuse_malformed_control_records()


def test_a_voter_that_lost_its_disk_joins_again_by_itself() -> None:
    world = QuorumWorld(5)
    world.form(3, 1, has_auto_join=True)
    world.start()
    everyone = list(world.replicas.values())
    assert world.run(30_000, until=lambda: _are_voters(world, everyone))
    lost = next(one for one in everyone if not one.leads)
    lost.kill()
    world.wipe(lost)
    lost.start()
    assert not _are_voters(world, [lost])
    assert world.run(world.now_ms + 30_000, until=lambda: _are_voters(world, everyone))


def _are_voters(world: QuorumWorld, replicas: list[Replica]) -> bool:
    return all(world.checks.committed_voters.has(one.key) for one in replicas)
