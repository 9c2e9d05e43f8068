import pytest

from ottla.clients.assignors.assignor import PreviousAssignment
from ottla.clients.assignors.known import assignors
from ottla.clients.assignors.range_assignor import RangeAssignor
from ottla.clients.config.setting_table import InvalidClientSettingError


def test_assignors_are_found_by_kafkas_names_of_either_kind() -> None:
    java = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    found = assignors(["range", "roundrobin", "sticky", java])
    assert [one.name for one in found] == ["range", "roundrobin", "sticky", "cooperative-sticky"]
    assert [one.is_cooperative for one in found] == [False, False, False, True]


def test_an_own_assignor_stays_as_it_is() -> None:
    class Alphabetical(RangeAssignor):
        name = "alphabetical"

    own = Alphabetical()
    assert assignors([own]) == (own,)
    assert own.user_data(PreviousAssignment()) is None


@pytest.mark.parametrize(
    ("strategies", "said"),
    [(["stiky"], "did you mean sticky"), ([], "no assignor"), (["range", "range"], "twice")],
)
def test_what_is_wrong_is_said(strategies: list[str], said: str) -> None:
    with pytest.raises(InvalidClientSettingError, match=said):
        assignors(strategies)
