"""Brokers that are killed during compaction: see `kill_cleaner`."""

from pathlib import Path

from tests.crashes.kill_cleaner import run_rounds


def test_brokers_killed_while_they_compact_keep_the_last_value_of_every_key(tmp_path: Path) -> None:
    written, left = run_rounds(tmp_path, rounds=2, seed=7, records=1500)
    assert left < written / 2
