"""Tasks that write in transactions, and drivers that decide, without Spark: all their deaths."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from ottla import Admin, Consumer, TopicPartition
from ottla.clients.admin.admin_cluster import FeatureUpdateType
from ottla.clients.admin.admin_configs import ConfigResource
from ottla.clients.admin.admin_transactions import TransactionStatus
from ottla.pipelines.sink import commit_driver, exactly_once
from ottla.pipelines.sink.commit_decision import TOPIC
from ottla.pipelines.sink.exactly_once import (
    NO_BATCH,
    AttemptName,
    DecisionError,
    Decisions,
    OpenTransaction,
    open_producer,
    prepare,
)
from ottla.testing import Broker
from tests.pipelines.sink.reading import all_committed, committed, wait_for

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
}
FORGETFUL = {
    "transactional.id.expiration.ms": "1",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "50",
}
KINDS = ("two phases", "in time", "version 1")
NO_DECISION = "was aborted before its batch could be committed"


@pytest.fixture(scope="module", params=KINDS)
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    has_two_phases = str(request.param == "two phases").lower()
    settings = {**SETTINGS, "transaction.two.phase.commit.enable": has_two_phases}
    with Broker(settings) as broker:
        if request.param == "version 1":
            with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                level = {"transaction.version": 0}
                admin.cluster.update_features(level, allow=FeatureUpdateType.UNSAFE_DOWNGRADE)
        yield broker.bootstrap_servers


class Query:
    """A query that writes to one topic."""

    def __init__(self, servers: str) -> None:
        self.move(servers)
        self.name = f"query-{uuid4()}"
        self.topic = f"topic-{uuid4()}"
        with Admin(self.settings) as admin:
            admin.topics.create(self.topic, partitions=2)

    def move(self, servers: str) -> None:
        """Use other bootstrap servers from now on."""
        self.servers = servers
        self.settings = {"bootstrap.servers": servers}

    def write(
        self, value: str, *, task: int = 0, attempt: int = 0, run: str = "r1", **more: str
    ) -> OpenTransaction:
        """Write as a task does."""
        settings = self.settings | {name.replace("_", "."): value for name, value in more.items()}
        producer = open_producer(settings, AttemptName(self.name, run, task, attempt))
        producer.send_arrow(self.topic, pa.table({"value": [value]}))
        return prepare(producer)

    def driver(self) -> Decisions:
        return Decisions(self.settings, self.name)

    def decide_and_die(self, opened: list[OpenTransaction]) -> None:
        """Do the first half of a driver's work for batch 0."""
        with self.driver() as driver:
            decided = driver._deciding._decided(0, tuple(opened), has_lost=False)
            assert driver._thread.run(decided).batch_id == 0

    def committed(self) -> list[str]:
        return sorted(all_committed(self.servers, self.topic))


def notes_about(query: Query) -> dict[bytes, bytes | None]:
    """Return the records of a query's decisions that compaction will keep."""
    partition = TopicPartition(TOPIC, 0)
    kept = {}
    with Consumer(query.settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        (end,) = consumer.end_offsets([partition]).values()
        while consumer.position(partition) < end:
            kept |= {record.key: record.value for record in consumer.poll(timeout=0.2)}
    return {key: value for key, value in kept.items() if key and query.name.encode() in key}


@pytest.fixture
def query(servers: str) -> Query:
    return Query(servers)


def test_nothing_is_seen_before_it_is_decided_and_all_of_it_after(query: Query) -> None:
    opened = [query.write("a", task=0), query.write("b", task=1)]
    assert committed(query.servers, query.topic) == []
    with query.driver() as driver:
        assert driver.last_batch_id() == NO_BATCH
        assert driver.commit(0, opened)
        assert driver.commit(1, [query.write("c", task=0)])
        assert driver.last_batch_id() == 1
    assert query.committed() == ["a", "b", "c"]


def test_a_batch_that_comes_again_adds_nothing(query: Query) -> None:
    with query.driver() as driver:
        driver.commit(7, [query.write("a"), query.write("b", task=1)])
    with query.driver() as driver:  # after a crash, with other tasks
        assert not driver.commit(7, [query.write("a", run="r2")])
        assert not driver.commit(7, [])
        assert driver.commit(8, [query.write("c", run="r2")])
    assert query.committed() == ["a", "b", "c"]


def test_a_batch_before_the_last_that_was_decided_is_refused(query: Query) -> None:
    with query.driver() as driver:
        driver.commit(7, [query.write("a")])
    opened = [query.write("b", run="r2")]
    for _ in range(2):
        with query.driver() as driver, pytest.raises(DecisionError, match="checkpoint is older"):
            driver.commit(6, opened)
    with query.driver() as driver:
        driver.abort(opened)
        assert driver.commit(8, [query.write("c", run="r2")])
    assert query.committed() == ["a", "c"]


def test_what_a_dead_driver_had_decided_is_done_by_the_next(query: Query) -> None:
    opened = [query.write("a"), query.write("b", task=1)]
    query.decide_and_die(opened)
    assert committed(query.servers, query.topic) == []
    with query.driver() as driver:
        assert driver.last_batch_id() == 0
        assert not driver.commit(0, [query.write("a and b", run="r2")])
    assert query.committed() == ["a", "b"]


def test_what_dead_attempts_have_left_open_is_aborted_with_the_next_decision(query: Query) -> None:
    query.write("of a run that died", task=5, run="r0")
    query.write("of an attempt that died")
    with query.driver() as driver:
        driver.commit(0, [query.write("a", attempt=1)])
        assert query.committed() == ["a"]
        query.write("of a second attempt that died", task=1)
        driver.commit(1, [query.write("b", task=1, attempt=1)], has_lost=True)
    assert query.committed() == ["a", "b"]


def test_what_a_slower_attempt_has_left_open_is_aborted_when_it_is_time(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    with query.driver() as driver, Admin(query.settings) as admin:

        def commit_with_a_slower_attempt(batch_id: int) -> str:
            slower = query.write("came second", attempt=1).transactional_id
            assert driver.commit(batch_id, [query.write(f"{batch_id}")])
            return admin.transactions.describe(slower)[slower].state

        driver.commit(0, [query.write("0")])
        assert commit_with_a_slower_attempt(1) == TransactionStatus.ONGOING
        monkeypatch.setattr(commit_driver, "LOOK_SECONDS", 0.0)
        assert commit_with_a_slower_attempt(2) != TransactionStatus.ONGOING
    assert query.committed() == ["0", "1", "2"]


def test_transactions_of_other_queries_are_left_alone(query: Query) -> None:
    other = Query(query.servers)
    other.name, other.topic = f"{query.name}-2", query.topic
    opened = other.write("b")
    with query.driver() as driver:
        driver.commit(0, [query.write("a")])
    with other.driver() as driver:
        driver.commit(0, [opened])
    assert query.committed() == ["a", "b"]


def test_of_two_drivers_of_one_batch_one_wins(query: Query) -> None:
    with query.driver() as first, query.driver() as second:
        assert first.commit(0, [query.write("a", run="r1")])
        of_first = [query.write("b", run="r1")]
        assert second.commit(1, [query.write("b", run="r2")])
        assert not first.commit(1, of_first)
        assert first.commit(2, [query.write("c", run="r1")])
        assert not second.commit(2, [query.write("c", run="r2")])
        assert second.commit(3, [query.write("d", run="r2")])
        assert first.commit(4, [query.write("e", run="r1")])
    assert query.committed() == ["a", "b", "c", "d", "e"]


def test_a_transaction_that_took_too_long_is_not_decided_on(query: Query) -> None:
    late = query.write("a", transaction_timeout_ms="1")
    with Admin(query.settings) as admin:

        def is_aborted() -> bool:
            found = admin.transactions.describe(late.transactional_id)[late.transactional_id]
            return found.state == TransactionStatus.COMPLETE_ABORT

        wait_for(is_aborted, "the broker aborts what takes too long")
    with query.driver() as driver:
        with pytest.raises(DecisionError, match=NO_DECISION):
            driver.commit(0, [late, query.write("b", task=1)])
        assert driver.last_batch_id() == NO_BATCH
        driver.commit(0, [query.write("a", run="r2"), query.write("b", task=1, run="r2")])
    assert query.committed() == ["a", "b"]


def test_a_decided_transaction_that_a_broker_has_aborted_is_told_of(query: Query) -> None:
    query.decide_and_die([query.write("a")])
    with Admin(query.settings) as admin:
        admin.transactions.terminate(f"{query.name}.r1.0.0")
    with query.driver() as driver, pytest.raises(DecisionError, match="its rows are lost"):
        driver.commit(0, [])


def test_a_failed_batch_is_aborted(query: Query) -> None:
    opened = [query.write("a"), query.write("b", task=1)]
    with query.driver() as driver:
        driver.abort(opened)
        driver.abort(opened)
    assert query.committed() == []


def test_a_failed_batch_aborts_unreported_transactions(query: Query) -> None:
    decided = [query.write("a")]
    query.decide_and_die(decided)
    forgotten = query.write("of a task that Spark did not name", task=3)
    with query.driver() as driver, Admin(query.settings) as admin:
        driver.abort([])
        names = [each.transactional_id for each in (*decided, forgotten)]
        states = {name: each.state for name, each in admin.transactions.describe(names).items()}
    assert states[decided[0].transactional_id] == "Ongoing"
    assert states[forgotten.transactional_id] in {"PrepareAbort", "CompleteAbort"}


def test_a_decided_transaction_is_not_aborted_by_an_unaware_driver(query: Query) -> None:
    opened = [query.write("a"), query.write("b", task=1)]
    query.decide_and_die(opened)
    with query.driver() as driver:
        driver.abort([*opened, query.write("c", task=2)])
    assert query.committed() == ["a", "b"]


def test_a_query_of_one_batch_leaves_nothing(query: Query) -> None:
    with query.driver() as driver:
        driver.commit_once([query.write("a"), query.write("b", task=1)])
    assert query.committed() == ["a", "b"]
    assert set(notes_about(query).values()) == {None}


def test_a_decision_can_be_about_many_tasks(query: Query) -> None:
    opened = [query.write("a", task=task, run="r" * 64) for task in range(60)]
    with query.driver() as driver:
        driver.commit(0, opened)
    with query.driver() as driver:
        assert driver.commit(0, opened)  # once more
    assert query.committed() == ["a"] * 60


def test_a_broker_is_asked_once_for_terms_that_it_refuses(servers: str) -> None:
    query = Query(servers)
    query.write("a")
    known = exactly_once._terms_by_servers[servers]
    assert next(iter(exactly_once._terms(query.settings))) == known
    assert query.write("b", transaction_timeout_ms="60000")


@contextmanager
def two_weeks_later(query: Query, folder: Path) -> Iterator[None]:
    """Run a broker with the topics of a query, and without its transactions."""
    with (
        Broker(SETTINGS | FORGETFUL, data_dir=folder) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        wait_for(lambda: not admin.transactions.list(), "all transactions are forgotten")
    with Broker(SETTINGS, data_dir=folder) as broker:
        query.move(broker.bootstrap_servers)
        yield


def test_a_batch_comes_again_when_its_transactions_are_forgotten(tmp_path: Path) -> None:
    with Broker(SETTINGS, data_dir=tmp_path) as broker:
        query = Query(broker.bootstrap_servers)
        with query.driver() as driver:
            assert driver.commit(7, [query.write("a"), query.write("b", task=1)])
        assert query.committed() == ["a", "b"]
    with two_weeks_later(query, tmp_path):
        with query.driver() as driver:
            assert driver.last_batch_id() == 7
            assert not driver.commit(7, [query.write("a and b", run="r2")])
            assert driver.commit(8, [query.write("c", run="r2")])
        assert query.committed() == ["a", "b", "c"]


def test_what_was_decided_and_never_done_is_told_of_however_late(tmp_path: Path) -> None:
    with Broker(SETTINGS, data_dir=tmp_path) as broker:
        query = Query(broker.bootstrap_servers)
        query.decide_and_die([query.write("a")])
        with Admin(query.settings) as admin:
            admin.transactions.terminate(f"{query.name}.r1.0.0")
    with two_weeks_later(query, tmp_path):
        with query.driver() as driver, pytest.raises(DecisionError, match="its rows are lost"):
            driver.commit(0, [])
        assert query.committed() == []


def test_a_topic_that_would_forget_decisions_is_refused() -> None:
    with Broker(SETTINGS) as broker:
        query = Query(broker.bootstrap_servers)
        with Admin(query.settings) as admin:
            admin.topics.create(TOPIC, partitions=1)
            opened = [query.write("a")]
            with query.driver() as driver, pytest.raises(DecisionError, match="set it to compact"):
                driver.commit(0, opened)
            admin.configs.alter({ConfigResource.topic(TOPIC): {"cleanup.policy": "compact"}})
        with query.driver() as driver:
            assert driver.commit(0, opened)
        assert query.committed() == ["a"]
