"""The verdict of `make peers` on the outcomes of other projects' tests."""

import pytest

from tools.peers.suite import Outcome, expectations, judge

EXPECTED = {"a": "", "b": "needs transactions"}


def test_what_fails_as_the_list_says_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert judge("suite", {"a": Outcome.PASSED, "b": Outcome.FAILED}, EXPECTED) == 0
    assert capsys.readouterr().out == "\nsuite: 1 of 2\n  b: failed, needs transactions\n"


@pytest.mark.parametrize(
    "outcomes",
    [
        pytest.param({"a": Outcome.FAILED, "b": Outcome.FAILED}, id="fails"),
        pytest.param({"a": Outcome.SKIPPED, "b": Outcome.FAILED}, id="skips itself"),
        pytest.param({"b": Outcome.FAILED}, id="did not run"),
        pytest.param({"a": Outcome.PASSED, "b": Outcome.PASSED}, id="passes by now"),
    ],
)
def test_what_the_list_does_not_say_is_a_failure(outcomes: dict[str, Outcome]) -> None:
    assert judge("suite", outcomes, EXPECTED) == 1


@pytest.mark.parametrize(
    ("suite", "count"),
    [("kafka-python", 56), ("franz-go", 28), ("librdkafka", 94), ("schema-registry", 97)],
)
def test_a_list_has_each_test_once(suite: str, count: int) -> None:
    assert len(expectations(suite)) == count


def test_a_reason_may_hold_for_three_brokers_only() -> None:
    needs_kraft = "test_describe_metadata_quorum"
    assert expectations("kafka-python", 1)[needs_kraft] == ""
    assert expectations("kafka-python", 3)[needs_kraft].startswith("needs KRaft")
    (needs_acls,) = {expectations("librdkafka", count)["0115_producer_auth"] for count in (1, 3)}
    assert needs_acls == "needs access control"
