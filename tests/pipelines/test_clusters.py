"""Executors in processes of their own: a short run of the soak, without kills."""

from pathlib import Path

import pytest

from tests.pipelines.soak_clusters import kill_nothing


@pytest.mark.soak
def test_a_local_cluster_adds_up_exactly_once(tmp_path: Path) -> None:
    kill_nothing(tmp_path, records=300)
