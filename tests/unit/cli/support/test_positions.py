"""Parsing positions in a topic."""

import pytest

from ottla.cli.support.exit_codes import WrongCallError
from ottla.cli.support.positions import (
    END,
    START,
    Position,
    PositionKind,
    parse_duration_ms,
    parse_position,
    parse_time_ms,
)
from ottla.runtime.clock import SystemClock


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("start", START),
        ("Earliest", START),
        ("end", END),
        ("47", Position(PositionKind.OFFSET, 47)),
        ("+2", Position(PositionKind.START, 2)),
        ("-3", Position(PositionKind.END, -3)),
        ("@1700000000000", Position(PositionKind.TIME, 1_700_000_000_000)),
        ("@2026-11-15T12:00", Position(PositionKind.TIME, 1_794_744_000_000)),
        ("@2026-11-15T12:00:00.5+01:00", Position(PositionKind.TIME, 1_794_740_400_500)),
    ],
)
def test_a_place_is_read(text: str, position: Position) -> None:
    assert parse_position(text) == position


def test_a_time_can_be_so_long_ago() -> None:
    before = SystemClock().now_ms()
    ago = parse_time_ms("-1h")
    assert before - 3_600_000 <= ago <= SystemClock().now_ms() - 3_600_000


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("500ms", 500),
        ("2d", 172_800_000),
        ("PT1H30M", 5_400_000),
        ("P1DT0.5S", 86_400_500),
        ("PT0.0019S", 1),
        ("3650000d", 315_360_000_000_000),
    ],
)
def test_a_duration_is_read_in_both_spellings(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize("text", ["", "5", "m", "1y", "P", "PT", "1h x", "-1h"])
def test_what_is_no_duration_is_a_wrong_call(text: str) -> None:
    with pytest.raises(WrongCallError, match="no duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    "text",
    [
        "3650001d",
        "3650000d1ms",
        "P3650000DT0.001S",
        f"{'9' * 23}d",
        f"P{'9' * 23}D",
        f"{'9' * 5000}d",
    ],
)
def test_a_duration_without_an_end_is_a_wrong_call(text: str) -> None:
    with pytest.raises(WrongCallError, match="no duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["", "middle", "1.5", "--3", "@", "@tomorrow", "1" * 30])
def test_what_is_no_place_is_a_wrong_call(text: str) -> None:
    with pytest.raises(WrongCallError, match="is no"):
        parse_position(text)
