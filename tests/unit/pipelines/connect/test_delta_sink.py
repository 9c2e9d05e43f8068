"""The Delta sink refuses a checkpoint that is older than its table."""

from pathlib import Path
from typing import Any

import pytest

from ottla.pipelines.connect import ConnectorError, Home
from ottla.pipelines.connect.delta_sink import DeltaSink

NO_ROWS: Any = None


def test_a_checkpoint_that_is_older_than_the_table_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = DeltaSink(Home("orders", tmp_path, "an-id"), {"path": str(tmp_path), "storage.": {}})
    monkeypatch.setattr(sink, "_last_batch", lambda _: 7)
    sink.write(NO_ROWS, 7)
    with pytest.raises(ConnectorError, match=r"the table has batch 7, the checkpoint is at 6"):
        sink.write(NO_ROWS, 6)
