"""Windows on event time against a plain model: late rows, and a restarted query."""

import random
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming import StatefulProcessor

from ottla.pipelines.running.progress import read_progress
from ottla.pipelines.streams.queries import NO_DATA_BATCHES, needs_no_data_batches
from ottla.streams import Pipeline, run, run_batch, stream
from tests.pipelines.streams.topics import committed, create, send
from tests.pipelines.streams.window_model import (
    Event,
    Pane,
    SessionModel,
    WindowModel,
    hopping,
)

STARTED = 1_800_000_000
LATE = 20
FLUSH = ("flush", STARTED + 100_000)


def define(suffix: str = "") -> None:
    clicks = stream("clicks").json("user string, at timestamp").event_time("at", late="20 seconds")
    by_user = clicks.group("user")
    by_user.window("10 seconds").count().to(f"tumbling{suffix}")
    by_user.window("20 seconds", every="10 seconds").count().to(f"hopping{suffix}")
    by_user.session("5 seconds").count().to(f"sessions{suffix}")


def models() -> dict[str, WindowModel]:
    return {
        "tumbling": WindowModel(LATE, hopping(10, 10)),
        "hopping": WindowModel(LATE, hopping(20, 10)),
        "sessions": SessionModel(LATE, 5),
    }


def some_clicks(dice: random.Random, number: int) -> list[Event]:
    """Return clicks of a minute, of which some are so late that windows are closed already."""
    begin = STARTED + 60 * number
    return [
        (dice.choice("abc"), begin + 2 * dice.randrange(-30, 30)) for _ in range(dice.randrange(60))
    ]


def send_clicks(servers: str, clicks: list[Event]) -> None:
    # Without a key: records go to either partition.
    send(servers, "clicks", [(None, {"user": key, "at": time}) for key, time in clicks])


def panes(servers: str, topic: str) -> Counter[Pane]:
    """Return the windows that were written, and their counts; each must be there once."""
    found: Counter[Pane] = Counter()
    for _, value in committed(servers, topic):
        start, end = (datetime.fromisoformat(value["window"][side]) for side in ("start", "end"))
        pane = (value["user"], int(start.timestamp()), int(end.timestamp()))
        assert pane not in found, "a window is written once"
        found[pane] = value["count"]
    return found


def test_windows_equal_the_model_with_late_rows_and_restarts(
    spark: Any, broker_servers: str, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    dice = random.Random(seed)
    create(broker_servers, "clicks", *models())
    expected: dict[str, Counter[Pane]] = {name: Counter() for name in models()}
    present = models()
    for number in range(3):
        clicks = some_clicks(dice, number) if number < 2 else [FLUSH]
        send_clicks(broker_servers, clicks)
        run(define, Pipeline("windows", broker_servers), state_dir=tmp_path, until_caught_up=True)
        for name, model in present.items():
            expected[name] += model.round(clicks)
            assert panes(broker_servers, name) == expected[name], (name, number)
    assert all(expected.values())


def test_a_batch_has_every_window_and_knows_nothing_of_late(
    spark: Any, broker_servers: str
) -> None:
    with_suffix = [f"{name}-batch" for name in models()]
    create(broker_servers, *with_suffix)
    run_batch(lambda: define("-batch"), Pipeline("windows", broker_servers))
    clicks = [(value["user"], int(value["at"])) for _, value in committed(broker_servers, "clicks")]
    assert clicks
    for name, model in models().items():
        every = model.round(clicks) + Counter(model._open)
        assert panes(broker_servers, f"{name}-batch") == every, name


def define_updates() -> None:
    visits = stream("visits").json("user string, at timestamp").event_time("at")
    panes = visits.group("user").window("10 seconds")
    panes.updates().count().to("visits-now")
    panes.count().to("visits-at-end")


def micro_batches(checkpoint: Path) -> int:
    return sum(each.name.isdecimal() for each in (checkpoint / "commits").iterdir())


def test_updates_need_no_empty_micro_batches_and_final_windows_still_get_them(
    spark: Any, broker_servers: str, tmp_path: Path
) -> None:
    create(broker_servers, "visits", "visits-now", "visits-at-end")
    folder = tmp_path / "pipelines" / "visits"
    state_rows: list[int] = []
    for round_number in range(3):
        begin = STARTED + 1000 * round_number
        visits = [(None, {"user": user, "at": begin}) for user in "abcab"]
        send(broker_servers, "visits", visits)
        pipeline = Pipeline("visits", broker_servers)
        run(define_updates, pipeline, state_dir=tmp_path, until_caught_up=True)
        folder = tmp_path / "pipelines" / "visits"
        rows_by_flow = {
            flow.flow: flow.state_rows for flow in read_progress(folder / "progress.json")
        }
        state_rows.append(rows_by_flow["visits-now"])
    batches = {
        flow: sum(
            each.name.isdecimal() for each in (folder / "checkpoints" / flow / "commits").iterdir()
        )
        for flow in ("visits-now", "visits-at-end")
    }
    assert batches == {"visits-now": 3, "visits-at-end": 6}
    assert spark.conf.get(NO_DATA_BATCHES) == "true", "the setting is of one query only"

    now = [(row["user"], row["count"]) for _, row in committed(broker_servers, "visits-now")]
    assert sorted(now) == sorted([("a", 2), ("b", 2), ("c", 1)] * 3)
    ended = panes(broker_servers, "visits-at-end")
    assert {begin for _, begin, _ in ended} == {STARTED, STARTED + 1000}, "all that have ended"
    assert state_rows == [3, 6, 6], "the state of an ended window goes one micro-batch later"


class Unused(StatefulProcessor):
    """A processor that may have timers."""

    def init(self, handle: Any) -> None:
        """Do nothing."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
        """Return nothing."""
        return iter(())

    def close(self) -> None:
        """Do nothing."""


def test_updates_after_timers_keep_the_empty_micro_batches_that_call_them(
    spark: Any, broker_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The plan is only looked at: running it would need pandas.
    for module in ("pandas.functions", "udf"):
        name = f"pyspark.sql.{module}.require_minimum_pandas_version"
        monkeypatch.setattr(name, lambda: None)
    pipeline = Pipeline("timers", broker_servers)
    visits = pipeline.stream("visits").json("user string, at timestamp").event_time("at")
    by_timer = visits.transform(
        lambda df: df.groupBy("user").transformWithState(
            Unused(), "user string, n long", outputMode="Update", timeMode="EventTime"
        )
    )
    visits.group("user").count().to("counted")
    by_timer.group("user").count().to("timed")
    visits.filter("user = 'a'").to("all")
    needed = {flow.name: needs_no_data_batches(flow) for flow in pipeline.flows}
    assert needed == {"counted": False, "timed": True, "all": True}
