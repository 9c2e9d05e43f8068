"""The printed report: the machine and the contenders first, then a table for each group."""

import os
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from math import isnan
from mmap import PAGESIZE, mmap
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

from benchmarks.comparison import Result
from ottla.schemas.arrow import avro_arrow
from ottla.storage.compaction import offset_map
from ottla.storage.segments import batch_scan
from ottla.wire import reading, writing
from ottla.wire.records import arrow, crc32c, loops

PEERS = ("kio", "kafka-python", "aiokafka")
COLUMNS = ("work", "ours", "peer", "ratio", "asked for", "verdict")
FRESH_MEGABYTES: Final = 256

_Line = tuple[str, str, str, str, str, str]


def machine() -> Iterator[str]:
    """Describe the machine, and the versions of the contenders."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    yield f"{cores} cores, {_processor()}, load average {os.getloadavg()[0]:.1f}; {python}"
    yield f"Compiled loops: {', '.join(_compiled_loops()) or 'none, all is plain Python'}"
    yield f"Peers: {', '.join(f'{name} {version(name)}' for name in PEERS)}"
    yield f"Fresh memory, which logs are written into: {_fresh_memory_ms():.2f} ms for a MB"


def table(title: str, results: Iterable[Result]) -> Iterator[str]:
    """Lay the results out in columns: a line for our own figure, then one for each peer."""
    lines = [COLUMNS, *(line for result in results for line in _lines(result))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    yield title
    for index, line in enumerate(lines):
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        yield "  " + "  ".join(cells).rstrip()
        if index == 0:
            yield "  " + "  ".join("-" * width for width in widths)


def _lines(result: Result) -> Iterator[_Line]:
    case, unit = result.case, result.case.unit
    asked = verdict = ""
    if case.asked is not None:
        asked = f"at {'most' if unit.is_time else 'least'} {case.asked:g} {unit.name}"
        verdict = _verdict(is_met=unit.is_met(result.ours, case.asked))
    ours = f"{_digits(result.ours)} {unit.name}{_spread(case.figures)}"
    yield case.work, ours, "", "", asked, verdict
    for index, (peer, figure) in enumerate(zip(case.peers, result.peers, strict=True)):
        if isnan(figure):
            yield "", "", f"{peer.name}: not here", "", "", ""
            continue
        ratios = result.ratios(index)
        asked = verdict = ""
        if peer.asked_ratio is not None:
            asked = f"at least {peer.asked_ratio:g}x {peer.name}"
            verdict = _verdict(is_met=median(ratios) >= peer.asked_ratio)
        yield (
            "",
            "",
            f"{peer.name} {_digits(figure)}{_spread(peer.figures)}",
            f"{median(ratios):.2f}x{_spread(ratios)}",
            asked,
            verdict,
        )


def _verdict(*, is_met: bool) -> str:
    return "met" if is_met else "short"


def _spread(figures: Sequence[float]) -> str:
    """Describe the spread of the rounds, if there were several."""
    return f" ({_digits(min(figures))} to {_digits(max(figures))})" if len(figures) > 1 else ""


def _digits(figure: float) -> str:
    decimals = 0 if figure >= 100 else 1 if figure >= 10 else 2
    return f"{figure:.{decimals}f}"


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    described = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in described if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _fresh_memory_ms() -> float:
    """Return the time to get a fresh megabyte: on some machines longer than the work in it.

    A host may give the memory of a virtual machine page by page, and reclaim freed memory.
    """
    size = FRESH_MEGABYTES << 20
    with mmap(-1, size) as memory:
        began = perf_counter()
        for position in range(0, size, PAGESIZE):
            memory[position] = 1
        return 1000 * (perf_counter() - began) / FRESH_MEGABYTES


def _compiled_loops() -> Iterator[str]:
    modules = {
        "reading": loops.read_records.__module__,
        "writing": loops.RecordAccumulator.__module__,
        "crc32c": crc32c.crc32c.__module__,
        "Arrow": vars(arrow)["Columns"].__module__,
        "Arrow rows": vars(arrow)["Rows"].__module__,
        "Avro to Arrow": vars(avro_arrow)["Decoder"].__module__,
        "Arrow to Avro": vars(avro_arrow)["Encoder"].__module__,
        "messages read": getattr(vars(reading)["_compiled"], "__name__", reading.__name__),
        "messages written": getattr(vars(writing)["_compiled"], "__name__", writing.__name__),
        "compaction": offset_map.OffsetMap.__module__,
        "recovery": batch_scan.BatchScan.__module__,
    }
    for name, module in modules.items():
        if not getattr(sys.modules[module], "__file__", "").endswith(".py"):
            yield name
