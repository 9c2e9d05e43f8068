"""A pipeline starts over: all output is written once more, and old state does not interfere."""

import json
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, TransactionFilter, TransactionStatus
from ottla.pipelines.running.runner import end_transactions_of
from ottla.pipelines.sink.exactly_once import AttemptName, Decisions, open_producer, prepare
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


def test_what_was_decided_and_can_no_more_be_done_is_told_of_and_left(
    broker_servers: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create(broker_servers, "late", partitions=1)
    settings = {"bootstrap.servers": broker_servers}
    (tmp_path / "metadata").write_text('{"id":"late-query"}')
    opened = []
    for task in range(2):
        producer = open_producer(settings, AttemptName("ottla-late-query", "run", task, 0))
        producer.send("late", "{}")
        opened.append(prepare(producer))
    with Decisions(settings, "ottla-late-query") as driver:  # which dies when it has decided
        decided = driver._deciding._decided(0, tuple(opened[:1]), has_lost=False)
        driver._thread.run(decided)
    with Admin(settings) as admin:
        admin.transactions.terminate(opened[0].transactional_id)
        open_now = TransactionFilter(states={TransactionStatus.ONGOING})
        end_transactions_of(tmp_path, settings)
        assert "begins again all the same: batch 0 was to be committed" in caplog.text
        assert not admin.transactions.list(open_now)


def leave_a_transaction_open(servers: str, checkpoints: Path) -> None:
    """Write as a task does before its driver is killed, without a decision."""
    query_id = json.loads((checkpoints / "big" / "metadata").read_text())["id"]
    name = AttemptName(f"ottla-{query_id}", "run", 0, 0)
    producer = open_producer({"bootstrap.servers": servers}, name)
    producer.send("sorted", json.dumps({"n": -1, "kind": "never"}))
    prepare(producer)
