"""The decision whether a task writes, skips or refuses its micro-batch."""

from types import SimpleNamespace
from typing import Any, Self
from uuid import uuid4

import pytest

from ottla.pipelines.sink import writers
from ottla.pipelines.sink.exactly_once import AttemptName, DecisionError

OPTIONS: Any = SimpleNamespace(settings={})


class DecidedUpTo7:
    """The decisions of a query up to batch 7."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def last_batch_id(self) -> int:
        return 7


def is_decided(monkeypatch: pytest.MonkeyPatch, batch_id: int, streamed_batch: str | None) -> bool:
    context = SimpleNamespace(getLocalProperty={writers.BATCH_ID: streamed_batch}.get)
    monkeypatch.setattr(writers, "Decisions", DecidedUpTo7)
    monkeypatch.setattr(writers, "TaskContext", SimpleNamespace(get=lambda: context))
    return writers._is_decided(OPTIONS, "query", batch_id)


def test_a_micro_batch_that_was_decided_is_not_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert is_decided(monkeypatch, 7, "7")
    assert not is_decided(monkeypatch, 8, "8")


def test_a_checkpoint_that_is_older_than_what_was_decided_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(DecisionError, match=r"batch 7 was decided, the checkpoint is at 6"):
        is_decided(monkeypatch, 6, "6")


def test_a_process_does_not_remember_every_run_it_has_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writers, "Decisions", DecidedUpTo7)
    monkeypatch.setattr(writers, "open_producer", lambda *_: SimpleNamespace(close=lambda: None))
    for _ in range(1_000):
        run = AttemptName("query", uuid4().hex, 0, 0)
        assert not writers.write_in_transaction(OPTIONS, iter(()), run, 8).is_skipped
    assert len(writers._started) <= writers.STARTED_MAX


def test_a_run_that_is_forgotten_is_looked_up_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def look(*_: object) -> bool:
        nonlocal looks
        looks += 1
        return False

    monkeypatch.setattr(writers, "_is_decided", look)
    monkeypatch.setattr(writers, "open_producer", lambda *_: SimpleNamespace(close=lambda: None))
    first, *others = [
        AttemptName("query", uuid4().hex, 0, 0) for _ in range(1 + writers.STARTED_MAX)
    ]
    for run in (first, first, *others, first, first):
        assert not writers.write_in_transaction(OPTIONS, iter(()), run, 8).is_skipped
    assert looks == 1 + len(others) + 1


def test_an_older_version_of_a_job_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_decided(monkeypatch, 6, None)


def test_a_task_without_rows_opens_no_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "open_producer", lambda *_: pytest.fail("a producer was opened"))
    empty = SimpleNamespace(num_rows=0)
    name = AttemptName("query", "run", 0, 0)
    written = writers.write_in_transaction(OPTIONS, iter([empty]), name, -1)
    assert (written.row_count, written.transaction) == (0, None)
