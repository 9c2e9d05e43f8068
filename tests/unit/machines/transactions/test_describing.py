"""DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152)."""

from typing import Any

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from tests.unit.machines.transactions.host import ID, P0, P1, TIMEOUT_MS, Host


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


def test_what_is_not_there_cannot_be_described() -> None:
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
