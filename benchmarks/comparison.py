"""One piece of work, done by Ottla and by its peers, and timed alternately.

Time is CPU time. Each contender does its work in rounds, one round each in turn, and its best round
counts: other load on the machine can only make a round slower. Garbage is collected as usual, but
only the garbage of the work itself: the objects that the benchmarks have loaded are frozen.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from math import inf, nan
from statistics import median
from typing import NamedTuple

ROUNDS = 15
ROUND_SECONDS = 0.02
"""Approximate duration of a round; longer work is done once in a round."""

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a figure: the time of a call, where less is better, or an amount per second."""

    name: str
    factor: float
    is_time: bool

    def figure(self, seconds: float, amount: float) -> float:
        """Return the figure of a call that handled this amount in this time."""
        return seconds * self.factor if self.is_time else amount / seconds / self.factor

    def ratio(self, ours: float, theirs: float) -> float:
        """Return how many times as fast as a peer's figure ours is."""
        return theirs / ours if self.is_time else ours / theirs

    def is_met(self, figure: float, asked: float) -> bool:
        """Whether a figure meets its goal."""
        return figure <= asked if self.is_time else figure >= asked


MICROSECONDS = Unit("\N{MICRO SIGN}s", 1e6, is_time=True)
MILLISECONDS = Unit("ms", 1e3, is_time=True)
MILLION_RECORDS = Unit("M records/s", 1e6, is_time=False)
MILLION_BATCHES = Unit("M batches/s", 1e6, is_time=False)
GIGABYTES = Unit("GB/s", 1e9, is_time=False)
MEGABYTES = Unit("MB/s", 1e6, is_time=False)
SECONDS = Unit("s", 1, is_time=True)
BYTES_EACH = Unit("bytes", 1, is_time=True)


class Peer(NamedTuple):
    """A contender for the same work, with the goal of how many times as fast Ottla should be."""

    name: str
    work: Work
    asked_ratio: float | None = None
    figures: tuple[float, ...] = ()
    """As in a case; None for a missing peer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The work: its amount in one call, its goal, and the peers that do the same.

    Where a baseline is given, its time is subtracted from all contenders' times.
    """

    work: str
    unit: Unit
    ours: Work
    amount: float = 1
    asked: float | None = None
    peers: tuple[Peer, ...] = ()
    baseline: Work | None = None
    clock: Callable[[], float] = time.process_time
    rounds: int = ROUNDS
    figures: tuple[float, ...] = ()
    """Figures measured beforehand, round by round, of which the median counts; no work is timed."""


class Result(NamedTuple):
    """The figures of a case: ours, and the peers' in their order; nan for missing peers."""

    case: Case
    ours: float
    peers: tuple[float, ...]

    def ratios(self, index: int) -> list[float]:
        """Return how many times as fast as a peer we are, round by round if both have rounds.

        The state of the machine is the same for both sides of a round, and differs by more from one
        round to the next than contenders do.
        """
        ours, theirs = self.case.figures, self.case.peers[index].figures
        if not ours or len(ours) != len(theirs):
            ours, theirs = (self.ours,), (self.peers[index],)
        return [self.case.unit.ratio(*pair) for pair in zip(ours, theirs, strict=True)]


def measure(case: Case) -> Result:
    """Time all contenders of a case alternately."""
    if case.figures:
        peers_figures = (median(peer.figures or (nan,)) for peer in case.peers)
        return Result(case, median(case.figures), tuple(peers_figures))
    works = [case.ours, *(peer.work for peer in case.peers)]
    if case.baseline is not None:
        works.append(case.baseline)
    gc.collect()
    gc.freeze()
    best = _best_seconds(works, case.clock, case.rounds)
    gc.unfreeze()
    bare = best.pop() if case.baseline is not None else 0.0
    ours, *peers = (case.unit.figure(seconds - bare, case.amount) for seconds in best)
    return Result(case, ours, tuple(peers))


def _best_seconds(works: list[Work], clock: Callable[[], float], rounds: int) -> list[float]:
    calls = [_calls_per_round(work, clock) for work in works]
    best = [inf] * len(works)
    for _ in range(rounds):
        for index, work in enumerate(works):
            best[index] = min(best[index], _seconds(work, calls[index], clock))
    return best


def _calls_per_round(work: Work, clock: Callable[[], float]) -> int:
    work()  # warm-up: code that is compiled or loaded at first use is not counted
    seconds = max(_seconds(work, 1, clock), 1e-9)
    return max(1, round(ROUND_SECONDS / seconds))


def _seconds(work: Work, calls: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in repeat(None, calls):
        work()
    return (clock() - start) / calls
