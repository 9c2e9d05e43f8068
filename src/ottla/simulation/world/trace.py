"""The trace of a simulation as one number: equal traces mean equal runs."""

import marshal
from hashlib import blake2b
from typing import Final

UNHASHED_MAX: Final = 4000
"""So many words are hashed together."""
PLAIN: Final = 2
"""The version in which marshal writes equal values as equal bytes, with or without references."""


class Trace:
    """Hashes every event; optionally keeps readable lines, too."""

    def __init__(self, *, keeps_lines: bool = False) -> None:
        self.keeps_lines = keeps_lines
        self.lines: list[str] = []
        """Every event."""
        self.news: list[str] = []
        """Recorded notes: a few lines where events are thousands."""
        self._hash = blake2b(digest_size=16)
        self._unhashed: list[float | str] = []

    def add(self, now: float, *words: str | int) -> None:
        """Take an event at a moment. Words must not hold addresses, nor anything of the host."""
        unhashed = self._unhashed
        unhashed += (now, *words)
        if len(unhashed) >= UNHASHED_MAX:
            self._hash_all()
        if self.keeps_lines:
            self.lines.append(_line(now, words))

    def note(self, now: float, *words: str | int) -> None:
        """Take an event that people want to know of."""
        self.add(now, *words)
        self.tell(now, *words)

    def tell(self, now: float, *words: object) -> None:
        """Keep a line for people: it is not an event, and may hold anything."""
        if self.keeps_lines:
            self.news.append(_line(now, words))

    def digest(self) -> str:
        """Return the number, of all events so far."""
        self._hash_all()
        return self._hash.hexdigest()

    def _hash_all(self) -> None:
        self._hash.update(marshal.dumps(self._unhashed, PLAIN))
        self._unhashed.clear()


def _line(now: float, words: tuple[object, ...]) -> str:
    return f"{now:.6f} {' '.join(map(str, words))}"
