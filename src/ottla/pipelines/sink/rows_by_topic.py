"""Splits an Arrow batch by topic, without a loop over its rows."""

from collections.abc import Iterator, Sequence
from typing import Any


def rows_by_topic(
    batch: Any, columns: Sequence[str], topic: str | None
) -> Iterator[tuple[str, Any]]:
    """Yield the rows of each topic, in their order, with the columns to send.

    If `topic` is given, all rows go there. Otherwise, ValueError for a row without a topic.
    """
    sent = batch.select([name for name in columns if name != "topic"])
    if not batch.num_rows:
        return
    if topic is not None:
        yield topic, sent
        return
    names = batch.column("topic")
    if names.null_count:
        row = names.is_null().index(True).as_py()
        raise ValueError(
            f"a row has no topic (row {row} of its Arrow batch): fill the column topic, or give "
            "the option topic"
        )
    encoded = names.dictionary_encode()
    topics = encoded.dictionary.to_pylist()
    if len(topics) == 1:
        yield topics[0], sent
        return
    yield from _parts(sent, encoded.indices, topics)


def _parts(sent: Any, indices: Any, topics: list[str]) -> Iterator[tuple[str, Any]]:
    from pyarrow import compute  # noqa: PLC0415 - not needed for a single topic

    in_order = sent.take(compute.array_sort_indices(indices))
    counts = compute.value_counts(indices)
    count_by_index = dict(
        zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    )
    start = 0
    for index, topic in enumerate(topics):
        yield topic, in_order.slice(start, count_by_index[index])
        start += count_by_index[index]
