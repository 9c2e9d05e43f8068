"""The live table of `ottla pipeline run` and `status`, on terminals of any width."""

import io

import pytest
from rich.console import Console

from ottla.cli.support.pipeline_status import FLOW_COLUMNS, NARROW_COLUMNS, flow_rows, live_table
from ottla.pipelines.running.progress import FlowProgress
from ottla.pipelines.running.registry import Outcome

FLOW = FlowProgress(
    flow="revenue",
    batch=1234,
    rows=12345678,
    rows_per_second=12345.6,
    batch_ms=1234,
    lag=123456,
    watermark="2026-11-18T19:01:58.000Z",
    state_rows=123456,
    state_bytes=123456789,
    at="2026-11-18T19:02:00.000Z",
)


def shown(width: int, flows: list[FlowProgress]) -> list[str]:
    output = io.StringIO()
    table = live_table(flow_rows("demo", Outcome.RUNNING, flows), width)
    Console(file=output, width=width, force_terminal=True, color_system=None).print(table)
    return [line.rstrip() for line in output.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 100])
def test_a_narrow_terminal_shows_each_flow_in_one_whole_line(width: int) -> None:
    head, first, second, *caption = shown(width, [FLOW, FLOW])
    assert tuple(head.split()) == NARROW_COLUMNS
    expected = ["demo/revenue", "running", "1234", "12345678", "12345.6", "123456", "1234"]
    assert first.split() == second.split() == expected
    assert caption == ["wider terminals show more; Ctrl-C ends this"]


def test_a_wide_terminal_shows_all_columns() -> None:
    head, row, _ = shown(200, [FLOW])
    assert head.split() == list(FLOW_COLUMNS)
    assert "2026-11-18T19:01:58.000Z" in row


def test_a_pipeline_without_progress_is_shown() -> None:
    _, row, _ = shown(80, [])
    assert row.split()[:3] == ["demo", "running", "-"]
    head, row, _ = shown(200, [])
    assert head.split() == list(FLOW_COLUMNS)
    assert row.split()[:2] == ["demo", "running"]
