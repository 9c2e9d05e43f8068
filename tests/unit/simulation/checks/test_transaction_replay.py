"""Replaying transactions from logs detects impossible states, and gives the last stable offset."""

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.simulation.checks.history import History, Outcome, Read
from ottla.simulation.checks.replica_model import Batch
from ottla.simulation.checks.transaction_replay import Ended, ProducerReplay
from ottla.simulation.workloads.copy_workload import CopyWorkload
from ottla.simulation.workloads.workload import Workload
from ottla.wire.records.control import ControlType, EndTxnMarker

PRODUCER = 7
COMMIT = EndTxnMarker(ControlType.COMMIT, 0)


def batch(
    offset: int,
    epoch: int = 0,
    sequence: int = 0,
    *,
    marker: EndTxnMarker | None = None,
    producer_id: int = PRODUCER,
) -> Batch:
    """One record, or one marker, of a transaction."""
    sequence = sequence if marker is None else -1
    return Batch(
        offset, offset + 1, 0, 0, producer_id, epoch, sequence, sequence, True, marker, b""
    )


def replayed(*batches: Batch) -> ProducerReplay:
    replay = ProducerReplay()
    for one in batches:
        replay.take(one)
    return replay


def test_what_is_in_sequence_is_well() -> None:
    replay = replayed(
        batch(0, 0, 5), batch(1, 0, 6), batch(2, 1, marker=COMMIT), batch(3, 1, 0), batch(4, 1, 1)
    )
    assert not replay.wrong
    assert replay.ended == [Ended(PRODUCER, 1, True, 0, 2)]


@pytest.mark.parametrize(
    ("second", "rule"),
    [(batch(1, 1, 2), "T1"), (batch(1, 1, 0), "T1"), (batch(1, 2, 1), "T1"), (batch(1, 0), "T3")],
    ids=["a hole", "a repetition", "not from the beginning", "an old epoch"],
)
def test_what_cannot_follow_is_found(second: Batch, rule: str) -> None:
    (wrong,) = replayed(batch(0, 1, 0), second).wrong
    assert wrong.startswith(rule)


def test_nothing_is_stable_from_an_open_transaction_on() -> None:
    replay = replayed(batch(0), batch(1, producer_id=8), batch(2, 1, marker=COMMIT))
    assert replay.stable_offsets(3) == (1, 1)
    assert replay.stable_offsets(2) == (0, 1)


@pytest.mark.parametrize(
    ("copied", "is_well"),
    [("ab", True), ("a", False), ("abb", False), ("ba", False)],
    ids=["all", "one is missing", "one is there twice", "another order"],
)
def test_copies_are_what_was_copied(copied: str, is_well: bool) -> None:
    history = History()
    workload = Workload(history, [], 0, partitions=1)

    def read(topic: str, values: str) -> None:
        operation = history.begin("reader")
        partition = TopicPartition(topic, 0)
        operation.read = [Read(partition, value, 2 * at) for at, value in enumerate(values)]
        history.end(operation, Outcome.OK)

    read("letters", "ab")
    read("copies", copied)
    copies = CopyWorkload(workload, lambda *_: pytest.fail("nobody is to copy"))
    assert (not copies.uncopied()) == is_well
