"""`make demo`, where nobody looks: it ends by itself, and what it says is true."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo_ends_by_itself_with_what_the_shop_has_sold(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        encoding="utf-8",
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^The first result came after [\d.]+ s\.$", done.stdout, re.MULTILINE)
    sums = re.search(
        r"^All (\d+) sums are those in the shop's own books", done.stdout, re.MULTILINE
    )
    assert sums is not None, done.stdout
    assert int(sums[1]) >= 5
    assert "What to try next" in done.stdout
    assert not list(tmp_path.glob("ottla-demo-*"))
    named = re.findall(r"(?:docs|examples)/[\w./-]+", done.stdout)
    assert len(named) >= 5
    assert [name for name in named if not (ROOT / name).exists()] == []
