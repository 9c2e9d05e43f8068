"""`make demo`: its output is correct at every moment, and its printed commands work."""

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from rich.console import Console

from examples.demo.results import Results
from examples.demo.screen import frame
from examples.demo.shop import PRODUCTS, Shop
from tests.pipelines.clusters.windows import JVM_OPTIONS

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, "-m", "examples.demo"]
SECONDS_MAX = 400
COLUMNS = 80


def test_the_demo_ends_by_itself_with_what_the_shop_has_sold(tmp_path: Path) -> None:
    done = subprocess.run(
        DEMO,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^The first result came after [\d.]+ s\.$", done.stdout, re.MULTILINE)
    sums = re.search(
        r"^All (\d+) sums are those in the shop's own books", done.stdout, re.MULTILINE
    )
    assert sums is not None, done.stdout
    assert int(sums[1]) >= 5
    assert re.search(r"^Spark (starts|ran)", done.stdout, re.MULTILINE)
    assert "Stopping the pipeline and Spark" in done.stdout
    assert "What to try next" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == []
    named = re.findall(r"(?:docs|examples)/[\w./-]+\w", done.stdout)
    assert len(named) >= 5
    assert [name for name in named if not (ROOT / name).exists()] == []


@contextmanager
def on_a_terminal(folder: Path) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Run the demo on a terminal of its own, and yield the other end of it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", *DEMO],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder), "TERM": "xterm", "COLUMNS": str(COLUMNS)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, is_there: Callable[[str], object]) -> str:
    """Return the terminal's output up to a condition, or until the terminal is closed."""
    shown, deadline = "", time.monotonic() + SECONDS_MAX
    with suppress(OSError):  # how Linux reports that no process has the terminal open any more
        while not is_there(shown):
            assert time.monotonic() < deadline, shown
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 1 << 16).decode(errors="replace")
    return shown


@pytest.mark.parametrize("phase", ["starts its JVM", "starts the pipeline"])
def test_ctrl_c_before_the_first_result_is_answered_at_once_and_is_no_error(
    phase: str, tmp_path: Path
) -> None:
    with on_a_terminal(tmp_path) as (process, terminal):
        shown = read_until(terminal, lambda shown: phase in shown)
        assert phase in shown
        os.write(terminal, b"\x03")
        rest = read_until(terminal, lambda shown: "Stopping the pipeline" in shown)
        rest += read_until(terminal, lambda _: False)
        assert process.wait(SECONDS_MAX) == 0, rest
    assert "No result came within" in rest
    assert "sums" not in rest
    assert "Traceback" not in rest
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_second_ctrl_c_kills_spark(tmp_path: Path) -> None:
    with on_a_terminal(tmp_path) as (process, terminal):
        read_until(terminal, lambda shown: "ran micro-batch" in shown)
        os.write(terminal, b"\x03")
        read_until(terminal, lambda shown: "Stopping the pipeline" in shown)
        process.send_signal(signal.SIGINT)
        rest = read_until(terminal, lambda _: False)
        assert process.wait(SECONDS_MAX) == 0, rest
    assert "Traceback" not in rest
    assert [path.name for path in tmp_path.iterdir()] == []


@contextmanager
def running(line: str, environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """Run a line as a shell does, until the block ends; then it gets Ctrl-C."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {line}"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=SECONDS_MAX)
        assert process.returncode in {0, 130}, (line, said)
        assert "Traceback" not in said
    finally:
        process.kill()
        process.wait()


def wait_for_line(process: "subprocess.Popen[str]", pattern: str) -> "re.Match[str]":
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        found = re.search(pattern, line)
        if found:
            return found
    raise AssertionError((process.args, said))


def printed_steps() -> list[str]:
    """Return the lines under `What to try next`, as the demo in this directory prints them."""
    script = "from examples.demo.screen import next_steps; print(next_steps())"
    path = os.pathsep.join(
        folder
        for folder in os.environ["PATH"].split(os.pathsep)
        if not (Path(folder) / "ottla").exists()
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= COLUMNS
    return [line.strip() for line in lines if line.startswith("  ")]


def test_every_printed_command_works_as_it_is_printed(tmp_path: Path) -> None:
    broker, shop, pipeline, consume, status = printed_steps()
    environment = {
        **os.environ,
        "OTTLA_LISTENERS": "PLAINTEXT://127.0.0.1:0",
        "OTTLA_LOG_DIRS": str(tmp_path / "data"),
        "OTTLA_OTTLA_SCHEMA_REGISTRY_LISTENER": "127.0.0.1:0",
        "PYTHONUNBUFFERED": "1",
        "JAVA_TOOL_OPTIONS": JVM_OPTIONS,  # the printed command has no --quick
    }
    with ExitStack() as stack:
        started = stack.enter_context(running(broker, environment))
        environment["OTTLA_BROKERS"] = wait_for_line(started, r"listening on (\S+)")[1]
        found = wait_for_line(started, r"schema registry at (\S+)")
        environment["OTTLA_SCHEMA_REGISTRY_URL"] = found[1]
        environment["OTTLA_STATE_DIR"] = str(tmp_path / "state")
        wait_for_line(stack.enter_context(running(shop, environment)), "Selling to")
        wait_for_line(stack.enter_context(running(pipeline, environment)), "runs: revenue")
        wait_for_line(stack.enter_context(running(consume, environment)), '"cents":')
        done = subprocess.run(
            ["/bin/sh", "-c", status],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=True,
        )
        assert re.search(r"^revenue +running +revenue +\d", done.stdout, re.MULTILINE), done


@pytest.mark.parametrize("cents", [5, 99_999_999])
def test_the_live_table_fits_80_columns_and_stands_still(cents: int) -> None:
    shop, results = Shop("nowhere:1"), Results()
    shop.orders = shop.payments = 123_456_789
    shapes = set()
    for count in (0, 1, 100):
        results.cents = {(name, 2 * number): cents for name in PRODUCTS for number in range(count)}
        output = io.StringIO()
        console = Console(file=output, width=COLUMNS, force_terminal=True, color_system=None)
        console.print(frame(shop, results, "ran micro-batch 999 in 60,000 ms, 9,999,999 rows"))
        lines = output.getvalue().splitlines()
        assert max(map(len, lines)) <= COLUMNS
        (head,) = (line for line in lines if "stamps" in line)
        assert all(product in head for product in PRODUCTS)
        assert len([line for line in lines if f"{cents / 100:,.2f}" in line]) == min(count, 6)
        shapes.add((len(lines), head))
    assert len(shapes) == 1
