"""What goes wrong in a connector for a reason that its owner can change."""

from collections.abc import Iterable
from difflib import get_close_matches


class ConnectorError(Exception):
    """A connector cannot be made, or cannot go on: a sentence that says where and what to do."""


class DeclarationError(ConnectorError):
    """A file declares no connector that could run: names the file, the key, and what is wrong."""

    def __init__(self, place: str, key: str, sentence: str) -> None:
        where = f"{place}, {key}" if key else place
        super().__init__(f"{where}: {sentence}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint such as `, did you mean 'topics'?`, or nothing if no name is near."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
