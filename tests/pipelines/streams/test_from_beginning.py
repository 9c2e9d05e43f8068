"""A pipeline begins again: everything is written once more, and nothing old is in the way."""

import json
from pathlib import Path
from typing import Any

from ottla.pipelines.sink.two_phases import AttemptName, open_producer, prepare
from ottla.streams import Pipeline, run, stream
from tests.pipelines.streams.topics import committed, create, send


def define() -> None:
    big, small = stream("numbers").json("n long").branch("n >= 5")
    big.map(n="n", kind="'big'").to("sorted", name="big")
    small.map(n="n", kind="'small'").to("sorted", name="small")


def test_from_the_beginning_everything_comes_again_past_what_a_crash_left_open(
    spark: Any, broker_servers: str, tmp_path: Path
) -> None:
    create(broker_servers, "numbers", "sorted", partitions=1)
    send(broker_servers, "numbers", [(None, {"n": n}) for n in range(10)])

    def run_it(*, from_beginning: bool) -> list[tuple[int, str]]:
        run(define, Pipeline("branches", broker_servers), state_dir=tmp_path,
            until_caught_up=True, from_beginning=from_beginning)  # fmt: skip
        rows = committed(broker_servers, "sorted")
        return sorted((value["n"], value["kind"]) for _, value in rows)

    once = [(n, "big" if n >= 5 else "small") for n in range(10)]
    assert run_it(from_beginning=False) == once

    leave_a_transaction_open(broker_servers, tmp_path / "pipelines" / "branches" / "checkpoints")
    send(broker_servers, "numbers", [(None, {"n": 10})])
    assert run_it(from_beginning=True) == sorted([*once, *once, (10, "big")])


def leave_a_transaction_open(servers: str, checkpoints: Path) -> None:
    """Write as a task does whose driver is killed before it decides."""
    query_id = json.loads((checkpoints / "big" / "metadata").read_text())["id"]
    name = AttemptName(f"ottla-{query_id}", "run", 0, 0)
    producer = open_producer({"bootstrap.servers": servers}, name)
    producer.send("sorted", json.dumps({"n": -1, "kind": "never"}))
    prepare(producer)
