"""Leaders on both sides are killed while a mirror copies, and every record arrives once."""

import random
from pathlib import Path

import pytest

from tests.pipelines.mirror.killing_leaders import rounds_of_killing

pytestmark = pytest.mark.usefixtures("needs_zookeeper")


def test_a_leader_of_the_source_dies_and_then_one_of_the_target(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)  # noqa: T201 - to have the same again
    assert rounds_of_killing(1, seed, tmp_path, is_spark=False) > 100
