"""What happened in a simulation, as one number: equal traces mean equal runs."""

from hashlib import blake2b


class Trace:
    """Takes in every event; keeps the lines too if it is told to."""

    def __init__(self, *, keeps_lines: bool = False) -> None:
        self.lines: list[str] = []
        self._keeps_lines = keeps_lines
        self._hash = blake2b(digest_size=16)

    def add(self, now: float, *words: object) -> None:
        """Note an event at a moment. Words must not hold addresses, nor anything of the host."""
        line = f"{now:.6f} {' '.join(map(str, words))}"
        self._hash.update(line.encode())
        if self._keeps_lines:
            self.lines.append(line)

    def digest(self) -> str:
        """Return the number, of everything so far."""
        return self._hash.hexdigest()
