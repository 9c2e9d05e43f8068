"""Mirrors are killed with SIGKILL, and every record arrives once."""

import random

from tests.pipelines.mirror.killing import rounds_of_killing


def test_mirrors_that_are_killed_lose_nothing_and_repeat_nothing() -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)  # noqa: T201 - to have the same again
    assert rounds_of_killing(3, seed, is_spark=False) > 100


def test_the_command_is_killed_with_spark_and_all_and_nothing_is_lost_or_repeated() -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)  # noqa: T201 - to have the same again
    assert rounds_of_killing(1, seed, is_spark=True) > 100
