"""Limits the number of offsets in a micro-batch, for maxOffsetsPerTrigger."""

from collections.abc import Mapping

from ottla.model.identifiers import TopicPartition


def limited(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], offsets_max: int
) -> dict[TopicPartition, int]:
    """Return ends such that all partitions together have at most `offsets_max` offsets.

    Shares are proportional to the waiting offsets, and at least one offset each if the limit
    allows it. Both maps have the same partitions; an end before its start stays as it is.
    """
    waiting = {name: end[name] - start[name] for name in end if end[name] > start[name]}
    total = sum(waiting.values())
    if total <= offsets_max:
        return dict(end)
    shares = {name: max(offsets_max * count // total, 1) for name, count in waiting.items()}
    over = sum(shares.values()) - offsets_max
    for name in sorted(shares, key=lambda name: -shares[name]):
        least = 0 if len(shares) > offsets_max else 1
        cut = max(min(over, shares[name] - least), 0)
        shares[name] -= cut
        over -= cut
    for name, count in waiting.items():  # distribute the remainder of the division
        more = min(-over, count - shares[name]) if over < 0 else 0
        shares[name] += more
        over += more
    return {name: start[name] + shares[name] if name in shares else end[name] for name in end}
