"""Registries of a cluster under faults: no id twice, no acknowledged schema lost, nothing undone.

`ottla simulate --story registry --seed N` shows the run of a failure. Not visible here, since a
second rule prevents the damage: an append without the check of the leader epoch (the end of the log
differs, too), or without the check of the end (the state of the epoch's begin is replayed first).
"""

from typing import NamedTuple

import pytest

from ottla.registry.schemas_log import SchemasRecord
from ottla.registry.schemas_records import schema_record, schema_tombstone
from ottla.schemas.schema import Schema
from ottla.simulation.faults.cluster_nemesis import Trouble
from ottla.simulation.faults.nemesis import Fault
from ottla.simulation.registry.registry_rules import registry_violations
from ottla.simulation.registry.registry_story import RegistryStory, run
from ottla.simulation.registry.registry_workload import Deleted, Place, RegistryHistory
from ottla.simulation.stories.cluster_story import Setting
from tests.simulation.registry_mutants import MUTANTS

SEEDS = range(2)  # without and with deletes; `make simulate` runs a thousand
SECONDS = 15.0
RESTLESS = Setting(
    partitions=1,
    pace_seconds=0.5,
    aimed=0.9,
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
INT, LONG = '"int"', '"long"'


@pytest.mark.parametrize("seed", SEEDS)
def test_registries_of_a_cluster_agree_under_faults(seed: int) -> None:
    report = run(seed, seconds=SECONDS, setting=RESTLESS, has_deletes=seed % 2 == 1)
    told = "\n".join(map(str, report.violations))
    assert not told, f"seed {seed}:\n{told}"
    assert sum(report.faults.values()) > 0


def test_clients_get_on_and_equal_seeds_give_equal_runs() -> None:
    calm = Setting(partitions=1, writers=0, members=0, has_operator=False)
    digests = set()
    for _ in range(2):
        story = RegistryStory(3, calm, has_deletes=True)
        report = story.run(lambda: story.world.elapse(5))
        assert not report.violations
        history = story.registries.history
        assert len(history.registered) > 30
        assert len(history.deleted) > 10
        assert history.read
        assert history.texts
        digests.add(report.digest)
    assert len(digests) == 1


def test_a_broker_that_stops_does_not_spin_while_schemas_has_no_leader() -> None:
    """A write waits for a leader of `_schemas`, and its broker stops."""
    assert not run(128, seconds=20).violations


class Found(NamedTuple):
    """How many seeds it took, how many it may take, and the rules one of which finds it."""

    seeds: int
    budget: int
    rules: tuple[str, ...]
    has_deletes: bool = False


BY_CHANCE = {
    "responding_before_the_commit": Found(6, 10, ("S3 lost-schema",)),
    "replaying_uncommitted_records": Found(7, 12, ("S3 lost-schema", "S4 undone", "S7 diverged")),
    "leading_on_after_a_deposition": Found(1, 3, ("S3 lost-schema",)),
    "deciding_before_the_epoch_is_replayed": Found(3, 6, ("S1 id-twice", "S2 two-ids")),
    "not_waiting_for_the_forwarded_write": Found(5, 9, ("S5 unread",)),
    "giving_ids_of_deleted_schemas": Found(1, 2, ("S1 id-twice",), has_deletes=True),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found_by_chance(mutant: str) -> None:
    seeds, budget, rules, has_deletes = BY_CHANCE[mutant]
    with MUTANTS[mutant]():
        for seed in (seeds - 1, *range(budget)):  # the seed that found it is the first
            report = run(seed, seconds=SECONDS, setting=RESTLESS, has_deletes=has_deletes)
            if any(one.invariant in rules for one in report.violations):
                return
    pytest.fail(f"{mutant} was not found in {budget} runs")


def log_of(*records: tuple[bytes, bytes | None]) -> list[SchemasRecord]:
    return [SchemasRecord(offset, 0, *record) for offset, record in enumerate(records)]


A1 = schema_record("a", 1, 1, Schema(INT))
B1 = schema_record("b", 1, 1, Schema(INT))
A2 = schema_record("a", 2, 2, Schema(LONG))


def shown_by(*places: Place) -> dict[str, list[Place]]:
    return {"broker-0": list(places)}


ONE, TWO, OTHER = Place("a", 1, 1, INT), Place("a", 2, 2, LONG), Place("b", 1, 1, INT)


def test_a_right_history_is_right() -> None:
    history = RegistryHistory([ONE, TWO], [Deleted("b", 1, is_permanent=True)], [OTHER])
    history.texts.append(("a", 1, INT))
    records = log_of(A1, B1, A2, schema_tombstone("b", 1))
    assert not list(registry_violations(records, history, shown_by(ONE, TWO)))


@pytest.mark.parametrize(
    ("records", "history", "rule"),
    [
        ([A1, schema_record("a", 2, 1, Schema(LONG))], RegistryHistory(), "S1 id-twice"),
        ([A1, schema_record("b", 1, 2, Schema(INT))], RegistryHistory(), "S2 two-ids"),
        ([A1], RegistryHistory([TWO]), "S3 lost-schema"),
        ([A1], RegistryHistory([], [Deleted("a", 1, is_permanent=False)]), "S3 lost-delete"),
        ([A1], RegistryHistory([], [], [TWO]), "S4 undone"),
        ([A1], RegistryHistory(texts=[("a", 2, LONG)]), "S4 undone"),
        ([A1], RegistryHistory(unread=["a"]), "S5 unread"),
        ([A2], RegistryHistory(), "S6 versions"),
        ([A1, A2], RegistryHistory(), "S7 diverged"),
        ([A1], RegistryHistory(refused=["a"]), "S8 refused"),
    ],
)
def test_each_rule_refuses_a_wrong_history(
    records: list[tuple[bytes, bytes | None]], history: RegistryHistory, rule: str
) -> None:
    found = registry_violations(log_of(*records), history, shown_by(ONE))
    assert rule in [one.invariant for one in found]
