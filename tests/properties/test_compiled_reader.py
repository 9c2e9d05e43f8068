"""The compiled reader and the generated reader give equal results for any bytes."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.wire.schema import Message
from ottla.wire.writing import encode
from tests.message_strategies import name_of, values_of
from tests.reader_twins import Twins, drop_tagged_fields, every_version, structs_in

FEW = settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
CASES = pytest.mark.parametrize(("cls", "version"), every_version(), ids=name_of)
DAMAGES = 16
TELLING_BYTES = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)


@pytest.mark.usefixtures("needs_compiled_loops")
@CASES
@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_both_readers_agree(
    cls: type[Message], version: int, data: st.DataObject, seed: int
) -> None:
    value, dice, twins = (
        data.draw(values_of(cls, version)),
        random.Random(seed),
        Twins(cls, version),
    )
    raw = encode(value, version)
    assert twins.agree_on(raw)
    for _ in range(DAMAGES):
        assert twins.agree_on(damaged(raw, dice))
    assert twins.agree_on(noise(dice))
    drop_tagged_fields(value, version)
    assert twins.both_read(encode(value, version))
    if version >= cls.flexible_since:
        for struct in structs_in(value):
            struct.unknown_tags = {1000: b"new"} if dice.random() < 0.3 else None
        assert twins.agree_on(encode(value, version))


def damaged(raw: bytes, dice: random.Random) -> bytes:
    """Truncate, change, insert or remove bytes."""
    changed = bytearray(raw[: dice.randrange(len(raw) + 1)] if dice.random() < 0.4 else raw)
    for _ in range(dice.randrange(4)):
        at, byte = dice.randrange(len(changed) + 1), dice.choice(TELLING_BYTES)
        changed[at : at + dice.randrange(2)] = bytes([byte] * dice.randrange(3))
    return bytes(changed)


def noise(dice: random.Random) -> bytes:
    """Generate bytes with many short lengths, which a reader does not refuse at once."""
    return bytes(dice.choice(TELLING_BYTES) for _ in range(dice.randrange(60)))
