"""A producer's speed in transactions if the single steps of the protocol cost nothing.

Records are written in four ways, alternately: without transactions; without, but awaited where a
transaction would end; in transactions that a broker acknowledges without any work; and in real
transactions. The second is the floor of any protocol, the third the floor of any coordinator.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from benchmarks.broker_process import MeasuredBroker
from benchmarks.broker_starts import started_ottla
from benchmarks.comparison import MEGABYTES, Case, Peer, Unit
from benchmarks.imports import with_bytecode_in
from benchmarks.side_by_side import CPU, CPU_SECONDS, GB
from benchmarks.transactional_load import Transactions, Way
from benchmarks.transactions import LARGE, NEARLY_AS_GOOD, written

TITLE = "Transactions of 1,000 x 1 KB, and what they could be at best"
ROUNDS: Final = 7
WARM_UP_ROUNDS: Final = 1
UNDECIDED: Final = "in transactions that nothing is done for"
_numbers = count()


class _Contender(NamedTuple):
    """A way to write, and the broker for it."""

    name: str
    way: Way
    broker: MeasuredBroker

    def measure(self, load: Transactions) -> tuple[float, float]:
        """Return MB/s, and CPU seconds of the broker per GB."""
        before = self.broker.cpu_seconds()
        seconds = written(load, self.way, self.broker)
        cpu_seconds = self.broker.cpu_seconds() - before
        return load.size_bytes / MEGABYTES.factor / seconds, cpu_seconds / load.size_bytes * GB


def cases() -> Iterator[Case]:
    """Yield a row of speed and one of CPU for each number and kind of producers."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        start = partial(started_ottla, environment=with_bytecode_in(folder))
        real = stack.enter_context(start(f"{folder}/0")).broker
        undecided = start(f"{folder}/1", program="benchmarks.undecided_broker")
        contenders = [
            _Contender(Way.TRANSACTIONS.value, Way.TRANSACTIONS, real),
            _Contender(Way.WITHOUT.value, Way.WITHOUT, real),
            _Contender(Way.WAITING.value, Way.WAITING, real),
            _Contender(UNDECIDED, Way.TRANSACTIONS, stack.enter_context(undecided).broker),
        ]
        for load in LARGE:
            yield from _rows(contenders, load)


def _rows(contenders: list[_Contender], load: Transactions) -> Iterator[Case]:
    for _ in range(WARM_UP_ROUNDS):
        _round(contenders, load)
    rounds = [_round(contenders, load) for _ in range(ROUNDS)]
    yield _row(load.who, MEGABYTES, contenders, [[each[0] for each in one] for one in rounds])
    yield _row(CPU, CPU_SECONDS, contenders, [[each[1] for each in one] for one in rounds])


def _round(contenders: list[_Contender], load: Transactions) -> list[tuple[float, float]]:
    """Measure each once, alternately in forward and in reverse order."""
    order = list(enumerate(contenders))
    if next(_numbers) % 2:
        order.reverse()
    found = {index: contender.measure(load) for index, contender in order}
    return [found[index] for index in range(len(contenders))]


def _row(work: str, unit: Unit, contenders: list[_Contender], rounds: list[list[float]]) -> Case:
    ours, *others = zip(*rounds, strict=True)
    peers = [
        Peer(contender.name, _nothing, _asked(contender, unit), figures)
        for contender, figures in zip(contenders[1:], others, strict=True)
    ]
    return Case(work=work, unit=unit, ours=_nothing, figures=tuple(ours), peers=tuple(peers))


def _asked(contender: _Contender, unit: Unit) -> float | None:
    return NEARLY_AS_GOOD if contender.way is Way.WITHOUT and unit is MEGABYTES else None


def _nothing() -> None:
    """Do nothing: the figures were measured beforehand."""
