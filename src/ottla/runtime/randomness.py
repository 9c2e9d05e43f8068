"""The kernel's random numbers. The contract is `ottla.environment.randomness`."""

import secrets

_ID_BYTES = 16
_DASH = 62
"""The six bits that URL-safe base64 encodes as a dash."""


class SystemRandomness:
    """Random numbers from the kernel, suitable for secrets."""

    __slots__ = ()

    def uuid(self) -> bytes:
        """Return a random id of version 4 (RFC 9562), which no reserved id is."""
        while True:
            raw = bytearray(secrets.token_bytes(_ID_BYTES))
            if raw[0] >> 2 != _DASH:
                break
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        return bytes(raw)

    def below(self, limit: int) -> int:
        """Return a number from 0 up to, but not including, the limit."""
        return secrets.randbelow(limit)
