"""The way from one machine to another, in one direction."""

from random import Random  # noqa: TID251 - only the type: the stream is given

RETRANSMISSION_SECONDS = 0.2


class Link:
    """How long packets take, and whether any get through.

    A lost packet is sent again: as with TCP, all that can be seen of it is the time it takes.
    """

    def __init__(self, stream: Random) -> None:
        self.delay_seconds = 0.0002
        self.jitter_seconds = 0.0002
        self.loss = 0.0
        self.is_blocked = False
        self._stream = stream

    def draw_delay(self) -> float:
        """Return how long the next packet takes."""
        delay = self.delay_seconds + self._stream.expovariate(1 / self.jitter_seconds)
        while self.loss and self._stream.random() < self.loss:
            delay += RETRANSMISSION_SECONDS
        return delay

    def cut(self, size_bytes: int) -> int:
        """Return how many of the sent bytes arrive at once; mostly all of them."""
        if size_bytes > 1 and self._stream.random() < 0.1:
            return self._stream.randrange(1, size_bytes)
        return size_bytes
