"""Capture and copy go through kill -9 without losing or doubling a change."""

from pathlib import Path
from typing import Any

import pytest

from examples.local_postgres import LocalPostgres
from tests.pipelines.connect.killing import check_events, killed_rounds

Told = list[tuple[str | None, Any]]


def told(*events: tuple[str, int]) -> Told:
    """Return events with the number of each change; a delete is followed by its tombstone."""
    found: Told = []
    for op, number in events:
        found.append((op, {"n": number}))
        if op == "d":
            found.append((None, None))
    return found


def test_the_judge_sees_the_rows_that_events_lead_to() -> None:
    events = told(("r", 4), ("u", 5), ("d", 5), ("c", 6))
    assert check_events({1: events, 2: told(("c", 1), ("d", 1))}) == {1: {"n": 6}}


@pytest.mark.parametrize(
    "events",
    [
        told(("c", 1), ("u", 3)),
        told(("c", 1), ("u", 2), ("u", 2)),
        told(("c", 1), ("c", 2)),
        told(("c", 1), ("d", 1), ("d", 1)),
        told(("c", 1), ("u", 2), ("d", 1)),
        [*told(("c", 1), ("d", 1))[:2], *told(("c", 2))],
        [*told(("c", 1), ("d", 1)), (None, None)],
        told(("d", 1)),
    ],
)
def test_the_judge_sees_what_was_lost_or_doubled(events: Told) -> None:
    with pytest.raises((AssertionError, KeyError)):
        check_events({1: events})


@pytest.mark.soak
def test_a_database_is_told_and_copied_exactly_once_through_kill_nine(
    postgres: LocalPostgres, broker_servers: str, tmp_path: Path
) -> None:
    assert killed_rounds(postgres, broker_servers, tmp_path, rounds=1, seed=7) > 0
