"""Windows on event time against a plain model: late rows, and a restarted query."""

import random
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

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


def test_windows_are_those_of_the_model_with_late_rows_and_restarts(
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
