"""Random payloads through all decoders; `make soak` decodes two hundred times as many."""

import pytest

from tests.properties import payload_soak
from tests.properties.payload_soak import PAYLOADS, Outcome, run


@pytest.mark.usefixtures("needs_compiled_loops")
@pytest.mark.parametrize("seed", [1, 2])
def test_every_payload_ends_in_a_value_or_one_error(seed: int) -> None:
    found = run(PAYLOADS // 2, seed)
    assert found.values > PAYLOADS // 10
    assert found.errors > PAYLOADS


def test_memory_that_grows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    read = payload_soak._read

    def keeping(outcome: Outcome, payload: bytes, seed: int) -> None:
        kept.append(bytearray(1 << 16))
        read(outcome, payload[:4], seed)

    monkeypatch.setattr(payload_soak, "_read", keeping)
    with pytest.raises(AssertionError, match="bytes"):
        run(2 * payload_soak.BATCH, 1)
