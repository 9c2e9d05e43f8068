"""Transactions are aborted after their timeout, and unused transactional ids expire."""

from ottla.machines.transactions.producer_ids import Producer
from ottla.machines.transactions.transaction import State
from ottla.model.error_code import ErrorCode
from tests.unit.machines.transactions.host import DAY_MS, ID, P0, P1, TIMEOUT_MS, Host


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


def test_an_id_is_forgotten_when_nobody_has_used_it_for_long() -> None:
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
