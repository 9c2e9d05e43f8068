"""The worked example runs to its end, and its output is correct."""

import subprocess
import sys
from pathlib import Path


def test_a_group_goes_on_with_the_other_cluster() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.failover"],
        cwd=Path(__file__).parents[3],
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=300,
    )
    assert done.stdout.splitlines() == [
        "1000 orders were copied",
        "400 were read on the first cluster, 600 on the second",
        "each order was read once",
    ]
