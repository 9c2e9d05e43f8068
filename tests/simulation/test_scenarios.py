"""Scenarios from files end well: no record is lost, and the expected events have happened."""

from pathlib import Path

import pytest

from ottla.simulation.stories import scenario

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_story_ends_well(path: Path) -> None:
    report = scenario.run(scenario.parse(path.read_text(encoding="utf-8")))
    assert not report.violations


def test_what_was_expected_and_does_not_come_is_a_violation() -> None:
    told = scenario.parse('title = "Nothing"\nstep = []\n[expect]\nleader_epochs = 9\n')
    assert [str(one) for one in scenario.run(told).violations] == ["expectation: 1 leaders, not 9"]


@pytest.mark.parametrize(
    "text",
    [
        'title = "no steps"',
        'title = "unknown"\n[[step]]\ndo = "explode"',
        'title = "misspelt"\n[[step]]\ndo = "kill"\nwho = "leader"',
        "title =",
    ],
)
def test_a_file_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"step|explode|who|Invalid"):
        scenario.parse(text)
