"""No id is given twice and no acknowledged schema is lost, under all faults of the brokers."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.registry import registration
from ottla.registry.registry import Registry, Written
from tests.properties.registry_story import run, violations

SEEDS = range(12)
MUTANT_SEEDS = range(30)


@pytest.mark.parametrize("deletes", [False, True])
def test_registries_that_share_a_log_agree(deletes: bool) -> None:
    acknowledged = failures = 0
    for seed in SEEDS:
        story = run(seed, deletes=deletes)
        found = list(violations(story))
        assert not found, f"seed {seed}: {found[:3]}"
        acknowledged += len(story.acknowledged)
        failures += story.failures
    assert acknowledged > 30 * len(SEEDS)
    assert failures > len(SEEDS)


def test_equal_seeds_give_equal_runs() -> None:
    assert run(5).acknowledged == run(5).acknowledged


async def deciding_on_an_old_state(
    self: Registry, decide: Callable[[], Any], leadership: Any
) -> Any:
    decision = decide()
    # The end of the log at the append, which may be later than the end that the decision saw.
    end_offset = await self._log.end_offset()
    if decision.records:
        end_offset = await self._log.append(decision.records, leadership, end_offset)
        await self.wait_replayed(end_offset)
    return Written(decision.response, end_offset)


async def responding_before_the_replay(
    self: Registry, decide: Callable[[], Any], leadership: Any
) -> Any:
    await self.wait_replayed(leadership.end_offset)
    decision = decide()
    end_offset = self._state.end_offset
    if decision.records:
        end_offset = await self._log.append(decision.records, leadership, end_offset)
    return Written(decision.response, end_offset)


async def forwarding_without_waiting(self: Registry, url: str, request: Any, hops: int) -> Any:
    return await self._forward(url, request)


def forgetting_the_ids_of_deleted_schemas(machine: Any, context: str) -> int:
    ids = [
        version.stored.id
        for subject in machine.state.subjects_of(context)
        for version in machine.state.versions(subject).values()
    ]
    return max(ids, default=0) + 1


MUTANTS = [
    (Registry, "_write_once", deciding_on_an_old_state, False, "was given twice"),
    (Registry, "_write_once", responding_before_the_replay, False, "cannot be read"),
    (Registry, "_at_leader", forwarding_without_waiting, False, "cannot be read"),
    (registration, "next_id", forgetting_the_ids_of_deleted_schemas, True, "was given twice"),
]


@pytest.mark.parametrize(("owner", "name", "wrong", "deletes", "rule"), MUTANTS)
def test_the_rules_find_mutants(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, wrong: Any, deletes: bool, rule: str
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    for seed in MUTANT_SEEDS:
        if any(rule in found for found in violations(run(seed, deletes=deletes))):
            return
    pytest.fail(f"{wrong.__name__} was not found in {len(MUTANT_SEEDS)} runs")
