"""`make help` shows every target of the Makefile."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_make_help_has_one_line_for_every_target() -> None:
    command = ["make", "--no-print-directory", "help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    shown = [re.fullmatch(r"make ([a-z-]+) +\S.*", line) for line in done.stdout.splitlines()]
    makefile = (ROOT / "Makefile").read_text()
    assert [match and match[1] for match in shown] == re.findall(
        r"^([a-z-]+):", makefile, re.MULTILINE
    )


def test_make_without_a_target_still_runs_the_demo() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)[0] == "demo"
