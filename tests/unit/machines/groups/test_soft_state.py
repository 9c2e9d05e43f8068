"""Group state outside the log: deadlines, waiting members, notifications."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.machines.groups.soft_state import Attendance, Deadlines, Due, Phase, SoftState
from ottla.machines.moment import Moment


def at(monotonic_ms: int) -> Moment:
    return Moment(0, monotonic_ms)


def session(name: str) -> Due:
    return Due(Phase.SESSION, "readers", name)


def test_deadlines_pass_in_their_order() -> None:
    deadlines = Deadlines()
    for name, delay_ms in [("late", 30), ("early", 10), ("middle", 20)]:
        deadlines.set(session(name), at(0), delay_ms)
    assert deadlines.next_ms() == 10
    assert deadlines.take_due(at(9)) is None
    taken = [deadlines.take_due(at(25)) for _ in range(3)]
    assert taken == [session("early"), session("middle"), None]
    assert deadlines.next_ms() == 30


def test_an_immediate_deadline_is_due_a_millisecond_later() -> None:
    deadlines = Deadlines()
    deadlines.set(session("a"), at(5), 0)
    deadlines.set(session("b"), at(5), -7)
    assert deadlines.take_due(at(5)) is None
    assert deadlines.take_due(at(6)) == session("a")


def test_heartbeats_leave_nothing_behind() -> None:
    deadlines = Deadlines()
    for now_ms in range(10_000):
        deadlines.set(session("a"), at(now_ms), 10_000)
    assert len(deadlines._heap) == 1
    assert deadlines.next_ms() == 9_999 + 10_000


def test_members_that_come_and_go_leave_nothing_behind() -> None:
    deadlines = Deadlines()
    deadlines.set(session("stays"), at(0), 1_000_000)
    for number in range(10_000):
        deadlines.set(session(str(number)), at(0), 1_000_000)
        deadlines.cancel(session(str(number)))
    assert len(deadlines) == 1
    assert len(deadlines._heap) < 100
    assert deadlines.take_due(at(1_000_000)) == session("stays")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 20)), max_size=60))
def test_the_last_deadline_that_was_set_counts(changes: list[tuple[str, int]]) -> None:
    deadlines = Deadlines()
    expected: dict[Due, int] = {}
    for now_ms, (name, delay_ms) in enumerate(changes):
        if delay_ms < 0:
            deadlines.cancel(session(name))
            expected.pop(session(name), None)
        else:
            deadlines.set(session(name), at(now_ms), delay_ms)
            expected[session(name)] = now_ms + max(delay_ms, 1)
        assert deadlines.next_ms() == min(expected.values(), default=None)
        due = deadlines.take_due(at(now_ms))
        assert (due is not None) == any(at_ms <= now_ms for at_ms in expected.values())
        if due is not None:
            assert expected.pop(due) <= now_ms
        assert len(deadlines) == len(expected)


def test_a_waiting_member_is_excused_but_not_the_first_time() -> None:
    attendance = Attendance()
    attendance.joining["a"] = 1
    attendance.syncing.add("b")
    assert attendance.is_excused("a")
    assert attendance.is_excused("b")
    assert not attendance.is_excused("c")
    attendance.new.add("a")
    assert not attendance.is_excused("a")


def test_nothing_is_kept_for_a_member_that_is_forgotten() -> None:
    attendance = Attendance()
    attendance.joining["a"] = 1
    attendance.new.add("a")
    attendance.unsynced.add("a")
    attendance.syncing.add("a")
    attendance.forget("a")
    attendance.forget("nobody")
    assert not attendance.joining
    assert not attendance.new | attendance.unsynced | attendance.syncing


def test_a_key_rings_once_however_often_it_was_notified() -> None:
    liveness = SoftState()
    for group_id in ("b", "a", "b"):
        liveness.notify(group_id)
    assert liveness.take_notified() == ("b", "a")
    assert liveness.take_notified() == ()
