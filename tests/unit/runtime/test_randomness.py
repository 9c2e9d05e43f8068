"""The kernel's random numbers."""

import secrets
from uuid import RFC_4122, UUID

import pytest

from ottla.model.identifiers import uuid_to_text
from ottla.runtime.randomness import SystemRandomness


def test_ids_are_random_uuids_that_are_never_the_same() -> None:
    dice = SystemRandomness()
    ids = {dice.uuid() for _ in range(1000)}
    assert len(ids) == 1000
    for raw in ids:
        assert UUID(bytes=raw).version == 4
        assert UUID(bytes=raw).variant == RFC_4122
        assert not uuid_to_text(raw).startswith("-")


def test_an_id_that_would_look_like_an_option_is_drawn_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = [b"\xf8" + bytes(15), b"\xfb" + bytes(15), bytes(16)]
    assert uuid_to_text(drawn[0]).startswith("-")
    monkeypatch.setattr(secrets, "token_bytes", lambda _: drawn.pop(0))
    assert SystemRandomness().uuid() == bytes([0] * 6 + [0x40, 0, 0x80] + [0] * 7)
    assert not drawn


def test_numbers_stay_below_their_limit_and_reach_all_of_it() -> None:
    dice = SystemRandomness()
    assert {dice.below(4) for _ in range(500)} == {0, 1, 2, 3}
    assert dice.below(1) == 0
