"""The example of the Python clients runs to its end, and its output is correct."""

import subprocess
import sys
from pathlib import Path


def test_letters_are_written_and_read() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "examples.letters"],
        cwd=Path(__file__).parent.parent,
        check=True,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "1000 letters were sent",
        "1000 letters were read",
        "the group has read 1000 letters",
    ]
