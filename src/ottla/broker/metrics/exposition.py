"""Prometheus' text format: families of samples to lines."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PART_LINES: Final = 256
"""The number of lines written per time slice: about a third of a millisecond."""

Kind = Literal["counter", "gauge", "histogram", "summary"]


class Sample(NamedTuple):
    """One line. Labels are text made by `labels`; a suffix is added to the family's name."""

    labels: str
    value: float
    suffix: str = ""


class Family(NamedTuple):
    """A metric family of Prometheus. The name is complete, with `_total` for a counter."""

    name: str
    kind: Kind
    documentation: str
    samples: Iterable[Sample]


def counter(name: str, documentation: str, samples: "Iterable[Sample] | float") -> Family:
    """Declare something that only grows."""
    return Family(name, "counter", documentation, _samples(samples))


def gauge(name: str, documentation: str, samples: "Iterable[Sample] | float") -> Family:
    """Declare something that goes up and down."""
    return Family(name, "gauge", documentation, _samples(samples))


def column(texts: Iterable[str], values: Iterable[float]) -> Iterator[Sample]:
    """Put labels and values together."""
    return map(Sample, texts, values)


def labels(**values: object) -> str:
    """Write labels as they stand between the braces."""
    return ",".join(f'{name}="{_escaped(str(value))}"' for name, value in values.items())


def text_parts(families: Iterable[Family]) -> Iterator[str]:
    """Write families, in parts of at most `PART_LINES` lines."""
    lines: list[str] = []
    for name, kind, documentation, samples in families:
        lines.append(f"# HELP {name} {documentation}\n# TYPE {name} {kind}\n")
        for sample_labels, value, suffix in samples:
            if sample_labels:
                lines.append(f"{name}{suffix}{{{sample_labels}}} {value}\n")
            else:
                lines.append(f"{name}{suffix} {value}\n")
            if len(lines) >= PART_LINES:
                yield "".join(lines)
                lines.clear()
    yield "".join(lines)


def _samples(samples: "Iterable[Sample] | float") -> Iterable[Sample]:
    return (Sample("", samples),) if isinstance(samples, int | float) else samples


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
