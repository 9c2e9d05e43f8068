"""What happened in a simulation, as one number: equal traces mean equal runs."""

from hashlib import blake2b


class Trace:
    """Takes in every event; keeps what people can read, too, if it is told to."""

    def __init__(self, *, keeps_lines: bool = False) -> None:
        self.keeps_lines = keeps_lines
        self.lines: list[str] = []
        """Every event."""
        self.news: list[str] = []
        """What was noted or told: a few lines where events are thousands."""
        self._hash = blake2b(digest_size=16)

    def add(self, now: float, *words: object) -> None:
        """Take an event at a moment. Words must not hold addresses, nor anything of the host."""
        line = _line(now, words)
        self._hash.update(line.encode())
        if self.keeps_lines:
            self.lines.append(line)

    def note(self, now: float, *words: object) -> None:
        """Take an event that people want to know of."""
        self.add(now, *words)
        self.tell(now, *words)

    def tell(self, now: float, *words: object) -> None:
        """Take what somebody says: no event, and it may hold anything."""
        if self.keeps_lines:
            self.news.append(_line(now, words))

    def digest(self) -> str:
        """Return the number, of all events so far."""
        return self._hash.hexdigest()


def _line(now: float, words: tuple[object, ...]) -> str:
    return f"{now:.6f} {' '.join(map(str, words))}"
