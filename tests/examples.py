"""The number of examples of a property test, by the hypothesis profile of the run.

The profiles are in `tests/conftest.py`; `--hypothesis-profile` chooses one.
"""

from typing import Final

from hypothesis import settings

FULL: Final = 100
"""`max_examples` of the profile `all`, which takes the numbers in the tests as they are."""


def examples(count: int) -> int:
    """Scale a number of examples to the loaded profile; call it when a test module is imported."""
    return -(-count * settings().max_examples // FULL)
