"""Records, partitions and folders as both sides of a comparison can describe them."""

from typing import Any, NamedTuple

Headers = tuple[tuple[str, str | None], ...]


class SeenRecord(NamedTuple):
    """A record as a reader sees it, in what JSON can hold."""

    offset: int
    timestamp_ms: int
    key: str | None
    value: str | None
    headers: Headers = ()


def seen_from_json(row: list[Any]) -> SeenRecord:
    """Read back what JSON made of a record."""
    offset, timestamp_ms, key, value, headers = row
    return SeenRecord(
        offset, timestamp_ms, key, value, tuple((name, text) for name, text in headers)
    )


def text_of(data: bytes | None) -> str | None:
    """Return the text that the stories are made of."""
    return None if data is None else data.decode()
