"""The compiled writer and the generated writer give equal results for any value."""

import copy
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.wire.schema import Message
from tests.message_strategies import name_of, values_of
from tests.reader_twins import every_version, structs_in
from tests.writer_twins import Twins, drop_default_structures, misuse

FEW = settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
CASES = pytest.mark.parametrize(("cls", "version"), every_version(), ids=name_of)
MISUSES = 16


@pytest.mark.usefixtures("needs_compiled_loops")
@CASES
@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_both_writers_agree(
    cls: type[Message], version: int, data: st.DataObject, seed: int
) -> None:
    value, dice, twins = (
        data.draw(values_of(cls, version)),
        random.Random(seed),
        Twins(cls, version),
    )
    assert twins.agree_on(value)
    for _ in range(MISUSES):
        misused = copy.deepcopy(value)
        misuse(misused, dice)
        assert twins.agree_on(misused)
    drop_default_structures(value, version)
    assert twins.both_write(value)
    for struct in structs_in(value):
        struct.unknown_tags = {1000: b"new"} if dice.random() < 0.3 else None
    assert twins.agree_on(value)
