"""`ottla simulate` shows runs, lists failed seeds, and replays a seed."""

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.commands import simulate
from ottla.cli.main import main
from ottla.simulation.checks.checkers import Violation
from ottla.simulation.stories.one_broker_story import run
from ottla.simulation.stories.report import Report


def call(*words: str) -> int:
    """Run the command; return its exit status."""
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *words])
    code = ended.value.code
    assert code is None or isinstance(code, int)
    return code or 0


def failing(seed: int, **options: Any) -> Report:
    """Run, and report a violation for every other seed."""
    report = run(seed, **options)
    if seed % 2:
        report.violations.append(Violation("J4 unseen", "a letter"))
    return report


def test_several_seeds_have_a_row_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--seeds", "3:5", "--seconds", "1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == list(simulate.COLUMNS)
    assert [line.split()[0] for line in lines[1:]] == ["3", "4"]


def test_one_seed_is_told_as_it_happened(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--seed", "3", "--seconds", "1", "--lines", "2") == 0
    told = capsys.readouterr().out
    assert run(3, seconds=1).digest in told
    assert "broker INFO topic letters is created" in told


def test_a_quorum_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--story", "quorum", "--seeds", "0:3", "--format", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["seed"] for row in rows] == [0, 1, 2]
    assert all(row["seconds"] > 12 and row["ok"] for row in rows)


def test_programs_are_given_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--seed", "3", "--seconds", "1", "--format", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["seed"] == 3
    assert told["violations"] == 0


def test_seeds_that_fail_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(simulate.RUN_BY_STORY, simulate.Story.ONE_BROKER, failing)
    assert call("--seeds", "0:4", "--seconds", "0.1") == 1
    said = capsys.readouterr().err
    assert "seed 1: J4 unseen: a letter" in said
    assert "violations with seed 1, 3" in said


def test_a_cluster_has_as_many_brokers_as_are_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call("--story", "cluster", "--brokers", "4", "--seed", "3", "--seconds", "0.1") == 0
    assert "broker-3 start" in capsys.readouterr().out


def test_a_file_tells_what_happens(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "story.toml"
    path.write_text('title = "A pause"\n[[step]]\ndo = "expire"\ntarget = "leader"\n')
    assert call("--scenario", str(path)) == 0
    assert "expire broker-" in capsys.readouterr().out
    path.write_text('title = "Nothing"\n')
    assert call("--scenario", str(path)) == 2
    assert "not a scenario" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [(), ("--seed", "1", "--seeds", "1:2"), ("--seeds", "1"), ("--seeds", "1:x")]
)
def test_a_wrong_call_is_told_what_is_right(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*words) == 2
    assert "--seed" in (said := capsys.readouterr().err) or "A:B" in said
