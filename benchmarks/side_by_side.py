"""Ottla and Apache Kafka measured alternately: the rounds, and the rows of the report."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from benchmarks.broker_starts import kafka_name
from benchmarks.comparison import Case, Peer, Unit

GB: Final = 1e9
CPU: Final = "\N{HORIZONTAL ELLIPSIS} CPU"
CPU_SECONDS: Final = Unit("CPU s/GB", 1, is_time=True)
MILLISECONDS: Final = Unit("ms", 1, is_time=True)
AS_GOOD: Final = 1.0

Figures = list[tuple[float, ...]]
"""The figures of the rounds, per contender."""

_T = TypeVar("_T")


def case(
    work: str,
    unit: Unit,
    figures: Figures,
    *,
    asked: float | None = None,
    asked_ratio: float | None = None,
) -> Case:
    """Make a row of the measured figures; Kafka's may be missing."""
    ours, theirs = (*figures, ())[:2]
    kafka = Peer(kafka_name(), lambda: None, asked_ratio, theirs)
    return Case(work=work, unit=unit, ours=lambda: None, figures=ours, asked=asked, peers=(kafka,))


def in_turns(
    contenders: Sequence[_T], rounds: int, measure: Callable[[_T], tuple[float, ...]]
) -> Iterator[Figures]:
    """Measure both, swapping the order each round; yield figure by figure, as from `measure`."""
    found: list[list[tuple[float, ...]]] = [[] for _ in contenders]
    order = list(range(len(contenders)))
    for _ in range(rounds):
        for index in order:
            found[index].append(measure(contenders[index]))
        order.reverse()
    for figures in zip(*(zip(*each, strict=True) for each in found), strict=True):
        yield list(figures)
