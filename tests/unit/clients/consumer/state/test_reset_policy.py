"""auto.offset.reset, as a name and as a duration."""

import pytest

from ottla.clients.consumer.state.reset_policy import parse_reset_policy


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("earliest", -2),
        ("latest", -1),
        ("by_duration:P1D", 100_000_000 - 86_400_000),
        ("by_duration:PT1H30M", 100_000_000 - 5_400_000),
        ("by_duration:PT0.25S", 100_000_000 - 250),
        ("by_duration:P1DT2S", 100_000_000 - 86_402_000),
    ],
)
def test_a_policy_gives_a_time_to_look_for(text: str, time_ms: int) -> None:
    assert parse_reset_policy(text).time_at(100_000_000) == time_ms


def test_none_leaves_it_to_the_application() -> None:
    assert parse_reset_policy("none").is_none


@pytest.mark.parametrize("text", ["", "first", "by_duration:", "by_duration:P", "by_duration:1D"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_reset_policy(text)
