"""Transaction log records in Kafka's format, written and read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.machines.transactions.producer_ids import NO_PRODUCER, Producer
from ottla.machines.transactions.records import record_of, tombstone, transaction_of
from ottla.machines.transactions.transaction import State, Transaction
from ottla.model.identifiers import TopicPartition
from ottla.wire.coordinator_records.transaction_state import TransactionLogKey, TransactionLogValue
from tests.unit.machines.transactions.host import CODEC, ID, P0, P1, Host

STATES = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
]
producers = st.builds(Producer, st.integers(0, 2**62), st.integers(0, 32767))
transactions = st.builds(
    Transaction,
    st.just(ID),
    producers,
    st.integers(1, 2**31 - 1),
    st.integers(0, 2**62),
    st.sampled_from([State.ONGOING, State.PREPARE_COMMIT, State.COMPLETE_ABORT]),
    st.integers(-1, 2**62),
    st.just(NO_PRODUCER) | producers,
    st.lists(st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 9)), unique=True).map(
        lambda found: tuple(sorted(found))
    ),
    st.integers(-1, 2**62),
    st.integers(0, 2),
)


@given(transactions, st.integers(1, 2))
def test_a_transaction_comes_back_from_its_bytes(transaction: Transaction, level: int) -> None:
    record = record_of(transaction, level)
    key, value, version = record.key, record.value, record.version
    assert value is not None
    assert version == 1
    read_key, read = CODEC.decode(CODEC.encode_key(key), CODEC.encode_value(value, version))
    assert read_key == TransactionLogKey(transactional_id=ID)
    assert isinstance(read, TransactionLogValue)
    assert transaction_of(ID, read) == record.transaction == transaction


@given(transactions)
def test_the_oldest_format_says_less_and_is_replayed_as_it_was_written(
    transaction: Transaction,
) -> None:
    record = record_of(transaction, 0)
    key, value, version = record.key, record.value, record.version
    assert value is not None
    assert version == 0
    _, read = CODEC.decode(CODEC.encode_key(key), CODEC.encode_value(value, version))
    assert isinstance(read, TransactionLogValue)
    assert transaction_of(ID, read) == record.transaction
    assert transaction_of(ID, read) == transaction._replace(
        previous_producer_id=-1, next_producer=NO_PRODUCER, client_version=0
    )


def test_the_bytes_equal_the_bytes_of_kafka() -> None:
    transaction = Transaction(ID, Producer(1, 2), 3, 4, State.ONGOING, start_ms=5)
    record = record_of(transaction._replace(partitions=(P0, P1)), 0)
    value = record.value
    assert value is not None
    assert CODEC.encode_key(record.key) == b"\x00\x00\x00\x06copier"
    assert CODEC.encode_value(value, 0).hex() == (
        "0000"  # version
        "0000000000000001" "0002" "00000003"
        "01"  # Ongoing
        "00000001" "0006" "6576656e7473" "00000002" "00000000" "00000001"
        "0000000000000004" "0000000000000005"
    )  # fmt: skip


def test_an_empty_transaction_has_no_list_of_partitions() -> None:
    value = record_of(Transaction(ID, Producer(1, 2), 3, 4), 2).value
    assert value is not None
    assert value.transaction_partitions is None
    assert value.transaction_status == 0


@pytest.mark.parametrize(("number", "state"), list(enumerate(STATES)))
def test_states_have_the_numbers_of_kafka(number: int, state: str) -> None:
    read = transaction_of(ID, TransactionLogValue(transaction_status=number))
    assert read is not None
    assert read.state.value == state


def test_a_state_from_the_future_is_no_transaction() -> None:
    assert transaction_of(ID, TransactionLogValue(transaction_status=8)) is None


def test_a_tombstone_forgets() -> None:
    host = Host()
    host.init()
    record = tombstone(ID)
    assert record.value is None
    host.machine.take(record)
    assert host.machine.transactional_ids() == []


def test_kafkas_record_of_a_new_id_without_an_epoch_counts_from_zero() -> None:
    value = TransactionLogValue(producer_id=1, producer_epoch=32767, next_producer_id=9)
    read = transaction_of(ID, value)
    assert read is not None
    assert read.holder == Producer(9, 0)
