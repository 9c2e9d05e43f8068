"""The number of examples of a property test, and the seeds of a random one, by the kind of run.

The profiles are in `tests/conftest.py`; `--hypothesis-profile` chooses one.
"""

from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import settings

FULL: Final = 100
"""`max_examples` of the profile `all`, which takes the numbers in the tests as they are."""


def examples(count: int) -> int:
    """Scale a number of examples to the loaded profile; call it when a test module is imported."""
    return -(-count * settings().max_examples // FULL)


def some(seeds: Sequence[int], count: int) -> list[Any]:
    """Return seeds to parametrize a test with; only the first run in `make test`."""
    rest = [pytest.param(seed, marks=pytest.mark.exhaustive) for seed in seeds[count:]]
    return [*seeds[:count], *rest]
