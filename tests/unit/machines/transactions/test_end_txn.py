"""EndTxn, by the table of KIP-890, and the markers that follow."""

import pytest

from ottla.machines.transactions.producer_ids import EPOCH_MAX, LAST_EPOCH_GIVEN, Producer
from ottla.machines.transactions.transaction import State
from ottla.model.error_code import ErrorCode
from tests.unit.machines.transactions.host import ID, P0, P1, Host

COMMIT, ABORT = True, False
BUMPED = "a new epoch"
AGAIN = "the answer again"
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
NEVER_WRITTEN = {State.DEAD, State.PREPARE_EPOCH_FENCE}
EARLIER = 9
"""The epoch at which the producer of these tests starts."""


def in_state(state: State, level: int = 2, version: int = 5) -> Host:
    """Bring a transaction to a state; its producer's epoch is not the first."""
    host = Host(level)
    host.go_to_epoch(EARLIER)
    if state is State.EMPTY:
        return host
    producer = host.transaction().holder
    host.add(producer, P0, version=5 if version == 5 else 3)
    if state is not State.ONGOING:
        host.end(producer, committed="COMMIT" in state.name, version=version)
    if "COMPLETE" in state.name:
        host.mark_all()
    assert host.transaction().state is state
    return host


def outcome(host: Host, asker: Producer, *, committed: bool, version: int) -> object:
    before = host.transaction()
    response = host.end_response(asker, committed=committed, version=version)
    if response.error_code:
        assert host.transaction() == before
        assert (response.producer_id, response.producer_epoch) == (-1, -1)
        return ErrorCode(response.error_code)
    told = Producer(response.producer_id, response.producer_epoch)
    if host.transaction() == before:
        assert told == (before.holder if version == 5 else (-1, -1))
        return AGAIN
    if before.state is State.ONGOING:
        return host.transaction().state
    assert host.transaction().state is State.COMPLETE_ABORT
    assert told == before.holder._replace(epoch=before.holder.epoch + 1)
    assert host.owed == []
    return BUMPED


@pytest.mark.parametrize(
    ("state", "abort_held", "abort_ended", "commit_held", "commit_ended"),
    [
        (State.EMPTY, BUMPED, FENCED, INVALID, FENCED),
        (State.ONGOING, State.PREPARE_ABORT, FENCED, State.PREPARE_COMMIT, FENCED),
        (State.PREPARE_ABORT, CONCURRENT, CONCURRENT, CONCURRENT, INVALID),
        (State.PREPARE_COMMIT, CONCURRENT, INVALID, CONCURRENT, CONCURRENT),
        (State.COMPLETE_ABORT, BUMPED, AGAIN, INVALID, INVALID),
        (State.COMPLETE_COMMIT, BUMPED, INVALID, INVALID, AGAIN),
    ],
)
def test_the_table_of_the_second_version(
    state: State,
    abort_held: object,
    abort_ended: object,
    commit_held: object,
    commit_ended: object,
) -> None:
    asked = [(ABORT, 0), (ABORT, -1), (COMMIT, 0), (COMMIT, -1)]
    expected = [abort_held, abort_ended, commit_held, commit_ended]
    for (committed, behind), wanted in zip(asked, expected, strict=True):
        for is_reloaded in (False, True):
            host = in_state(state)
            if is_reloaded:
                host.reload()
            holder = host.transaction().holder
            asker = holder._replace(epoch=holder.epoch + behind)
            assert outcome(host, asker, committed=committed, version=5) == wanted


@pytest.mark.parametrize("state", [state for state in State if state not in NEVER_WRITTEN])
@pytest.mark.parametrize("committed", [COMMIT, ABORT])
@pytest.mark.parametrize("distance", [-2, 1])
def test_all_other_epochs_are_fenced(state: State, committed: bool, distance: int) -> None:
    host = in_state(state)
    holder = host.transaction().holder
    stranger = holder._replace(epoch=holder.epoch + distance)
    assert outcome(host, stranger, committed=committed, version=5) is FENCED


@pytest.mark.parametrize(
    ("state", "abort", "commit"),
    [
        (State.EMPTY, INVALID, INVALID),
        (State.ONGOING, State.PREPARE_ABORT, State.PREPARE_COMMIT),
        (State.PREPARE_ABORT, CONCURRENT, INVALID),
        (State.PREPARE_COMMIT, INVALID, CONCURRENT),
        (State.COMPLETE_ABORT, AGAIN, INVALID),
        (State.COMPLETE_COMMIT, INVALID, AGAIN),
    ],
)
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("version", [2, 4])
def test_the_table_of_the_first_version(
    state: State, abort: object, commit: object, level: int, version: int
) -> None:
    for committed, wanted in ((ABORT, abort), (COMMIT, commit)):
        host = in_state(state, level, version)
        holder = host.transaction().holder
        assert holder.epoch == EARLIER, "which stays, whatever happens"
        assert outcome(host, holder, committed=committed, version=version) == wanted
        before = holder._replace(epoch=EARLIER - 1)
        assert host.end_error(before, committed=committed, version=version) is FENCED
        too_old = host.end_error(before, committed=committed, version=1)
        assert too_old is ErrorCode.INVALID_PRODUCER_EPOCH


def test_clients_of_the_second_version_finish_in_it_where_the_cluster_has_gone_back() -> None:
    host = in_state(State.ONGOING)
    holder = host.transaction().holder
    host.machine.use_level(1)
    told = host.end(holder, version=5)
    assert told == holder._replace(epoch=EARLIER + 1)
    host.mark_all()
    assert host.end(holder, version=5) == told, "the answer was lost"
    assert host.end(told, committed=False, version=5).epoch == EARLIER + 2, "nothing was written"


def test_where_the_version_cannot_be_written_down_no_end_brings_an_epoch() -> None:
    host = in_state(State.ONGOING, level=0)
    assert host.end(host.transaction().holder, version=5) == Producer(-1, -1)
    assert host.transaction().holder.epoch == EARLIER


@pytest.mark.parametrize("version", [4, 5])
def test_only_the_producer_of_the_id_can_end_it(version: int) -> None:
    host = in_state(State.ONGOING)
    stranger = Producer(4, EARLIER)
    assert host.end_error(stranger, version=version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    holder = host.transaction().holder
    nobody = host.end_error(holder, transactional_id="nobody", version=version)
    assert nobody is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    empty = host.end_error(holder, transactional_id="", version=version)
    assert empty is ErrorCode.INVALID_REQUEST


def test_a_late_end_does_not_join_the_next_transaction() -> None:
    host = in_state(State.COMPLETE_COMMIT)
    told = host.transaction().holder
    first = told._replace(epoch=told.epoch - 1)
    host.add(told, P1)
    for committed in (COMMIT, ABORT):
        assert host.end_error(first, committed=committed) is FENCED
    assert host.transaction().state is State.ONGOING


def test_a_fenced_commit_is_not_taken_for_the_commit_of_its_successor() -> None:
    host = Host()
    zombie = host.init()
    successor = host.init()
    host.add(successor, P0, version=3)
    host.end(successor, version=4)
    host.mark_all()
    assert host.end_error(zombie) is FENCED


# -- markers --------------------------------------------------------------------------------------


def test_markers_carry_the_new_epoch_and_the_coordinator_epoch() -> None:
    host = Host()
    host.reload()
    producer = host.init()
    host.add(producer, P0, P1)
    told = host.end(producer)
    (owed,) = host.owed
    message = owed.message([P1])
    assert (message.producer_id, message.producer_epoch) == told
    assert (message.transaction_result, message.transaction_version) == (True, 2)
    assert message.coordinator_epoch == host.machine.coordinator_epoch == 2
    assert [(topic.name, topic.partition_indexes) for topic in message.topics] == [("events", [1])]


def test_markers_of_the_first_version_carry_the_epoch_of_their_batches() -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P0, version=3)
    host.end(producer, version=4, committed=False)
    (owed,) = host.owed
    assert (owed.producer, owed.is_commit, owed.transaction_version) == (producer, False, 0)


def test_a_transaction_is_complete_with_its_last_marker() -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P0, P1)
    told = host.end(producer)
    (owed,) = host.owed
    assert not host.mark(owed, P0)
    assert not host.mark(owed, P0)
    assert host.transaction().state is State.PREPARE_COMMIT
    assert host.mark(owed, P1)
    found = host.transaction()
    assert (found.state, found.partitions, found.holder) == (State.COMPLETE_COMMIT, (), told)
    assert not host.mark(owed, P1), "that was all"


def test_a_completion_that_was_not_appended_is_reported_again() -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P0)
    host.end(producer)
    (owed,) = host.owed
    assert host.machine.decide_marked(owed, [P0], host.now).response, "and the disk is full"
    assert host.mark(owed)
    assert host.transaction().state is State.COMPLETE_COMMIT


def test_late_reports_of_markers_do_not_end_the_next_transaction() -> None:
    host = Host()
    producer = host.init()
    for _ in range(2):
        host.add(producer, P0, version=3)
        host.end(producer, version=4)
        first = host.owed[0]
        if len(host.owed) == 1:
            host.mark(first, P0)
    assert not host.mark(first, P0), "the same producer and epoch, but another end"
    assert host.transaction().state is State.PREPARE_COMMIT


def test_another_coordinator_sends_the_markers_again_to_all() -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P0, P1)
    host.end(producer)
    (before,) = host.owed
    host.mark(before, P0)
    host.reload()
    (owed,) = host.owed
    assert owed.partitions == (P0, P1)
    assert owed.coordinator_epoch == before.coordinator_epoch + 1
    assert not host.mark(before, P0, P1), "that was said to the one before"
    assert host.mark(owed, P0, P1)


def test_an_end_without_partitions_that_was_half_written_is_completed_after_a_reload() -> None:
    host = Host()
    host.end(host.init(), committed=False)
    host.reload(host.log[:-1])
    (owed,) = host.owed
    assert owed.partitions == ()
    assert host.mark(owed)
    assert host.transaction().state is State.COMPLETE_ABORT


# -- the last epoch -------------------------------------------------------------------------------


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_after_the_last_epoch_a_producer_goes_on_with_another_id(is_reloaded: bool) -> None:
    host = Host()
    last = host.go_to_epoch(LAST_EPOCH_GIVEN)
    host.add(last, P0)
    told = host.end(last)
    assert told == Producer(1002, 0)
    if is_reloaded:
        host.reload()
    (owed,) = host.owed
    assert owed.producer == Producer(last.producer_id, EPOCH_MAX), "in its own partitions"
    assert host.end_error(last) is CONCURRENT
    assert host.add(told, P1) is CONCURRENT
    host.mark_all()
    if is_reloaded:
        host.reload()
    assert host.end(last) == told, "whoever has not heard it is told again"
    assert host.end_error(last, committed=False) is INVALID
    host.add(told, P1)
    assert host.end_error(last) is FENCED
    assert host.machine.decide_describe(ID).response.producer_id == told.producer_id
