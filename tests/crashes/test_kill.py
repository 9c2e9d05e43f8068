"""A killed process loses nothing that it promised: on a real disk, by a real signal."""

from pathlib import Path

import pytest

from ottla.storage.log.log import PartitionLog
from tests.crashes.kill_writer import Promises, run_rounds
from tests.log_building import contents, fill, new_log


def test_what_killed_writers_had_been_promised_is_there(tmp_path: Path) -> None:
    heard = run_rounds(str(tmp_path), rounds=20, seed=20_26)
    assert heard > 1000


class TestPromises:
    """The checker detects losses."""

    def promised(self, log: PartitionLog) -> Promises:
        promises = Promises()
        promises.check(log)
        return promises

    def test_a_lost_batch_is_noticed(self) -> None:
        log = new_log()
        fill(log, 6)
        promises = self.promised(log)
        log.truncate_to(5)
        with pytest.raises(AssertionError, match="the batch before 6"):
            promises.check(log)

    def test_a_changed_batch_is_noticed(self) -> None:
        log = new_log()
        fill(log, 6)
        promises = self.promised(log)
        log.truncate_to(5)
        fill(log, 1, value=b"other")
        with pytest.raises(AssertionError, match="the batch before 6"):
            promises.check(log)

    def test_a_late_start_is_noticed(self) -> None:
        log = new_log()
        fill(log, 6)
        promises = self.promised(log)
        log.delete_segments(1, 0)
        with pytest.raises(AssertionError, match="begins too late"):
            promises.check(log)

    def test_what_was_announced_is_none(self) -> None:
        log = new_log()
        fill(log, 6)
        promises = self.promised(log)
        for line in ("cutting 5", "letting go 3"):
            promises.hear(line)
        log.truncate_to(5)
        log.delete_segments(1, 0)
        promises.check(log)
        assert len(contents(log)) == 2
