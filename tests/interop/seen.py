"""Records, partitions and log dirs in a form for comparing Kafka and Ottla."""

from typing import Any, NamedTuple

Headers = tuple[tuple[str, str | None], ...]


class SeenRecord(NamedTuple):
    """A record as a reader sees it, in types of JSON."""

    offset: int
    timestamp_ms: int
    key: str | None
    value: str | None
    headers: Headers = ()


def seen_from_json(row: list[Any]) -> SeenRecord:
    """Decode a record from its JSON form."""
    offset, timestamp_ms, key, value, headers = row
    return SeenRecord(
        offset, timestamp_ms, key, value, tuple((name, text) for name, text in headers)
    )


def text_of(data: bytes | None) -> str | None:
    """Return the text that the stories are made of."""
    return None if data is None else data.decode()
