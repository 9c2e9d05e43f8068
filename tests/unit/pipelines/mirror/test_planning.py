"""The offset ranges of a mirror's micro-batch."""

import asyncio
from typing import Any

import pytest

from ottla.pipelines.mirror import planning
from ottla.pipelines.mirror.copying import CopyRange
from ottla.pipelines.mirror.offset_syncs import MirroredTopic
from ottla.pipelines.mirror.options import MirrorOptions
from ottla.pipelines.mirror.planning import Planner

TRADES = MirroredTopic("trades", "ID", "trades", "SOURCE", ("cluster",), 1)
PLANNED = {"trades:ID": {"0": 500}}


class SeenInTurn(Planner):
    """A planner that finds these copies, one list per call, and then repeats the last."""

    def __init__(self, *answers: list[MirroredTopic]) -> None:
        places: Any = {"bootstrap.servers": "a:1"}, {"bootstrap.servers": "b:1"}
        super().__init__(MirrorOptions(*places, ("trades",)))
        self.answers = list(answers)
        self.asked = 0

    async def _copies(self) -> list[MirroredTopic]:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def ranges(planner: Planner, start: dict[str, Any], end: dict[str, Any]) -> list[CopyRange]:
    return asyncio.run(planner.ranges(start, end))


def test_a_planned_copy_that_is_missing_for_a_moment_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "_PAUSE_MS", 1)
    planner = SeenInTurn([], [], [TRADES])
    assert ranges(planner, {}, PLANNED) == [CopyRange("trades", "SOURCE", "trades", "ID", 0, 500)]


def test_a_planned_copy_that_stays_away_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_PAUSE_MS", 1)
    monkeypatch.setattr(planning, "GONE_SECONDS", 0.01)
    assert ranges(SeenInTurn([]), {}, PLANNED) == []


def test_a_missing_copy_that_nothing_is_planned_of_is_not_waited_for() -> None:
    planner = SeenInTurn([])
    assert ranges(planner, PLANNED, PLANNED) == []
    assert planner.asked == 1
