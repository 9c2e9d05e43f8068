"""The machine and its log: replay restores the complete state."""

from typing import Any

import pytest

from ottla.machines.transactions.producer_ids import Producer
from ottla.machines.transactions.records import TransactionRecord
from ottla.machines.transactions.transaction import State, Transaction
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.coordinator_records.classic_group import GroupMetadataKey
from ottla.wire.coordinator_records.transaction_state import TransactionLogKey, TransactionLogValue
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from tests.unit.machines.transactions.host import DAY_MS, ID, P0, P1, TIMEOUT_MS, Host


def test_deciding_changes_nothing() -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P0)
    before = host.transaction()
    request = EndTxnRequest(
        transactional_id=ID,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    decision = host.machine.decide_end(request, 5, None, host.now)
    assert decision.records
    assert host.transaction() == before
    assert host.machine.take_markers() == ()


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_reload_knows_all_that_was_known(level: int) -> None:
    host = Host(level)
    producer = host.init()
    host.init("another")
    for committed in (True, False):
        host.add(producer, P0, P1)
        producer = max(host.end(producer, committed=committed), producer)
        before = host.transaction()
        host.reload()
        assert host.transaction() == before
        host.mark_all()
        before = host.transaction()
        host.reload()
        assert host.transaction() == before
    assert host.machine.transactional_ids() == [ID, "another"]


def test_markers_are_taken_once() -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P0)
    host.end(producer)
    assert len(host.owed) == 1
    assert host.machine.take_markers() == ()


def test_records_that_are_no_transaction_are_skipped() -> None:
    host = Host()
    host.machine.replay(GroupMetadataKey(group="g"), None)
    host.machine.replay(
        TransactionLogKey(transactional_id=ID), TransactionLogValue(transaction_status=99)
    )
    host.machine.replay(
        TransactionLogKey(transactional_id="dead"), TransactionLogValue(transaction_status=6)
    )
    assert host.machine.transactional_ids() == []


def test_a_cluster_goes_on_to_the_second_version_between_transactions() -> None:
    host = Host(level=0)
    producer = host.init()
    host.add(producer, P0, version=3)
    host.end(producer, version=4)
    host.machine.use_level(2)
    host.level = 2
    assert host.end_error(producer, version=5) is ErrorCode.CONCURRENT_TRANSACTIONS
    host.mark_all()
    host.add(producer, P0)
    assert host.end(producer) == Producer(producer.producer_id, 1)


def test_a_record_of_kafka_without_the_previous_producer_continues() -> None:
    host = Host()
    value = TransactionLogValue(
        producer_id=5,
        producer_epoch=8,
        transaction_timeout_ms=1_000,
        transaction_status=4,
        transaction_partitions=[],
        client_transaction_version=2,
    )
    host.machine.replay(TransactionLogKey(transactional_id=ID), value)
    assert host.end(Producer(5, 7)) == Producer(5, 8), "the answer was lost"
    assert host.init_error(expected=Producer(5, 7)) is ErrorCode.PRODUCER_FENCED
    assert host.add(Producer(5, 8), P0) is ErrorCode.NONE
    assert host.transaction().state is State.ONGOING


@pytest.mark.parametrize(
    "wrong",
    [
        Transaction(ID, Producer(7, 3), 1_000, 60, State.COMPLETE_COMMIT),
        Transaction(ID, Producer(7, 2), 1_000, 60, State.ONGOING),
        None,
    ],
)
def test_a_decision_that_breaks_the_rules_of_a_transaction_is_not_replayed(
    wrong: Transaction | None,
) -> None:
    machine = Host().machine
    begun = Transaction(ID, Producer(7, 3), 1_000, 50, State.ONGOING, partitions=(P0,))
    machine.take(TransactionRecord(ID, begun, 1))
    with pytest.raises(AssertionError):
        machine.take(TransactionRecord(ID, wrong, 1))
    assert machine.transaction(ID) == begun


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P0, P1)
    host.pass_ms(TIMEOUT_MS)
    assert host.transaction().state is State.ONGOING
    host.pass_ms(10_001)
    assert host.transaction().state is State.PREPARE_ABORT
    (owed,) = host.owed
    assert owed.producer == Producer(producer.producer_id, 1)
    assert (owed.is_commit, owed.partitions) == (False, (P0, P1))
    assert host.add(producer, P0) is ErrorCode.PRODUCER_FENCED


def test_a_commit_that_comes_too_late_is_refused_and_an_abort_goes_on() -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P0)
    host.pass_ms(TIMEOUT_MS + 10_001)
    assert host.end_error(producer) is ErrorCode.INVALID_TXN_STATE
    assert host.end_error(producer, committed=False) is ErrorCode.CONCURRENT_TRANSACTIONS
    host.mark_all()
    assert host.end_error(producer) is ErrorCode.INVALID_TXN_STATE
    told = host.end(producer, committed=False)
    assert told == Producer(producer.producer_id, 1)
    assert host.add(told, P0) is ErrorCode.NONE


def test_in_the_first_version_a_late_producer_stays_fenced() -> None:
    host = Host(level=1)
    producer = host.init()
    host.add(producer, P0, version=3)
    host.pass_ms(TIMEOUT_MS + 10_001)
    assert host.owed[0].producer.epoch == 1
    assert host.owed[0].transaction_version == 0
    host.mark_all()
    for committed in (True, False):
        refused = host.end_error(producer, committed=committed, version=4)
        assert refused is ErrorCode.PRODUCER_FENCED
    assert host.init_error(expected=producer) is ErrorCode.PRODUCER_FENCED


def test_time_counts_from_the_first_partition_and_begins_anew_with_each_transaction() -> None:
    host = Host()
    producer = host.init()
    host.pass_ms(TIMEOUT_MS - 5_000)
    for _ in range(3):
        host.add(producer, P0)
        host.pass_ms(TIMEOUT_MS - 5_000)
        producer = host.end(producer)
        host.mark_all()
    assert host.transaction().state is State.COMPLETE_COMMIT


def test_a_reload_does_not_give_more_time() -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P0)
    host.pass_ms(TIMEOUT_MS - 5_000)
    host.reload()
    host.pass_ms(20_000)
    assert host.transaction().state is State.PREPARE_ABORT


def test_many_that_are_late_are_aborted_in_several_goes() -> None:
    host = Host()
    for number in range(450):
        name = f"copier-{number}"
        host.add(host.init(name), P0, transactional_id=name)
    host.pass_ms(TIMEOUT_MS - 1)
    host.pass_ms(10_010)
    assert len(host.owed) == 450


def test_an_unused_transactional_id_expires() -> None:
    host = Host()
    host.init()
    host.pass_ms(7 * DAY_MS - 1)
    assert host.machine.transactional_ids() == [ID]
    host.pass_ms(3_600_001)
    assert host.machine.transactional_ids() == []
    host.reload()
    assert host.machine.transactional_ids() == []
    assert host.init() == Producer(1002, 0)


def test_an_id_with_a_transaction_is_not_forgotten() -> None:
    host = Host(transaction_two_phase_commit_enable=True)
    producer = host.init(enable2_pc=True)
    host.add(producer, P0)
    host.pass_ms(30 * DAY_MS)
    assert host.transaction().state is State.ONGOING
    host.end(producer)
    host.pass_ms(30 * DAY_MS)
    assert host.transaction().state is State.PREPARE_COMMIT, "its markers are owed still"
    host.mark_all()
    host.pass_ms(30 * DAY_MS)
    assert host.machine.transactional_ids() == []


def test_many_unused_ids_are_forgotten_in_several_goes() -> None:
    host = Host()
    for number in range(450):
        host.init(f"copier-{number}")
    host.pass_ms(7 * DAY_MS + 3_600_010)
    assert host.machine.transactional_ids() == []


def test_nothing_is_due_before_the_start() -> None:
    host = Host()
    machine = host.loaded([])
    assert machine.next_deadline_ms() is None
    assert machine.expire(host.now).records == ()


def test_a_clock_that_is_set_ahead_aborts_nothing() -> None:
    host = Host()
    host.add(host.init(), P0)
    host.wall_ms += DAY_MS
    host.pass_ms(TIMEOUT_MS)
    assert host.transaction().state is State.ONGOING
    host.pass_ms(10_001)
    assert host.transaction().state is State.PREPARE_ABORT


def test_a_clock_that_is_set_back_keeps_nothing_open() -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P0)
    host.wall_ms -= DAY_MS
    host.pass_ms(30_000)
    host.add(producer, P1)  # it does not restart the timeout
    host.pass_ms(TIMEOUT_MS - 20_000 + 1)
    assert host.transaction().state is State.PREPARE_ABORT


def test_what_is_loaded_by_a_clock_that_lags_behind_has_its_time_once_more() -> None:
    host = Host()
    host.add(host.init(), P0)
    host.wall_ms -= DAY_MS
    host.reload()
    host.pass_ms(TIMEOUT_MS)
    assert host.transaction().state is State.ONGOING
    host.pass_ms(10_001)
    assert host.transaction().state is State.PREPARE_ABORT


def listed(host: Host, **filters: Any) -> list[str]:
    request = ListTransactionsRequest(**filters)
    response = host.machine.decide_list(request, host.now).response
    return [row.transactional_id for row in response.transaction_states]


def three() -> Host:
    """Make three transactional ids: one idle, one in a transaction, and one after an abort."""
    host = Host()
    host.init("idle")
    host.add(host.init("busy"), P0, transactional_id="busy")
    aborted = host.init("gone.away")
    host.end(aborted, committed=False, transactional_id="gone.away")
    return host


def test_a_transaction_is_described_with_its_partitions() -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P1, TopicPartition("another", 4), P0)
    shown = host.run(host.machine.decide_describe(ID))
    assert (shown.error_code, shown.transactional_id) == (ErrorCode.NONE, ID)
    assert (shown.transaction_state, shown.transaction_timeout_ms) == ("Ongoing", TIMEOUT_MS)
    assert shown.transaction_start_time_ms == host.wall_ms
    assert (shown.producer_id, shown.producer_epoch) == producer
    assert [(topic.topic, topic.partitions) for topic in shown.topics] == [
        ("another", [4]),
        ("events", [0, 1]),
    ]


def test_an_unknown_transaction_cannot_be_described() -> None:
    machine = Host().machine
    missing, empty = machine.decide_describe("x").response, machine.decide_describe("").response
    assert missing.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert missing.transactional_id == "x"
    assert empty.error_code == ErrorCode.INVALID_REQUEST


def test_filters_that_are_empty_let_all_pass() -> None:
    assert listed(three()) == ["idle", "busy", "gone.away"]
    assert listed(three(), transactional_id_pattern="") == ["idle", "busy", "gone.away"]


def test_lists_are_filtered_by_state_producer_age_and_name() -> None:
    host = three()
    assert listed(host, state_filters=["Ongoing", "Empty"]) == ["idle", "busy"]
    assert listed(host, producer_id_filters=[1002, 9]) == ["busy"]
    assert listed(host, transactional_id_pattern="(idle|gone.*)") == ["idle", "gone.away"]
    assert listed(host, transactional_id_pattern="us") == [], "a pattern is the whole of a name"
    host.wall_ms += 1_000
    assert "busy" in listed(host, duration_filter=999)
    assert "busy" not in listed(host, duration_filter=1_000)
    assert listed(host, state_filters=["Ongoing"], producer_id_filters=[1001]) == []


def test_states_that_do_not_exist_are_told_and_match_nothing() -> None:
    request = ListTransactionsRequest(state_filters=["Asleep", "Dead"])
    response = three().machine.decide_list(request, three().now).response
    assert response.unknown_state_filters == ["Asleep"]
    assert response.transaction_states == []


def test_a_pattern_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        listed(three(), transactional_id_pattern="(")
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
