"""Chance from one seed, in independent streams: one draw more in one stream shifts no other."""

from hashlib import blake2b
from random import Random  # noqa: TID251 - seeded: only here may randomness repeat itself


def dice(seed: int, label: str) -> Random:
    """Return the stream of this name."""
    digest = blake2b(f"{seed}:{label}".encode(), digest_size=16).digest()
    return Random(int.from_bytes(digest, "big"))  # noqa: S311 - no secrets


class SimulatedRandomness:
    """The twin of `runtime.randomness`."""

    def __init__(self, stream: Random) -> None:
        self._stream = stream

    def uuid(self) -> bytes:
        """Return a random id: none that is reserved, none that begins with a dash as text."""
        raw = bytearray(self._stream.randbytes(16))
        raw[0] &= 0x7F
        raw[6] = raw[6] & 0x0F | 0x40
        return bytes(raw)

    def below(self, limit: int) -> int:
        """Return a number from 0 up to, but not including, a limit."""
        return self._stream.randrange(limit)
