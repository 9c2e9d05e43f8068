"""The progress of a pipeline's flows: reported by Spark after each micro-batch, kept in a file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

from ottla.pipelines.running.folders import read_json

_NO_WATERMARK: Final = "1970-01-01T00:00:00.000Z"


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """The progress of one flow after its last micro-batch."""

    flow: str
    batch: int
    rows: int
    """Rows read since this process began."""
    rows_per_second: float
    """Rows read per second, in the last micro-batch."""
    batch_ms: int
    lag: int | None
    """The number of unread records; None if a source does not report it."""
    watermark: str
    state_rows: int
    state_bytes: int
    at: str
    """The time of the report."""

    @classmethod
    def of(cls, said: Mapping[str, Any], before: Self | None) -> Self:
        """Apply a progress report of Spark to the previous progress."""
        operators = said.get("stateOperators", ())
        watermark = said.get("eventTime", {}).get("watermark", "")
        return cls(
            flow=str(said["name"] or said["id"]).rpartition("/")[2],
            batch=said["batchId"],
            rows=said["numInputRows"] + (before.rows if before else 0),
            rows_per_second=round(said.get("processedRowsPerSecond") or 0.0, 1),
            batch_ms=said.get("durationMs", {}).get("triggerExecution", 0),
            lag=_lag(said.get("sources", ())),
            watermark="" if watermark == _NO_WATERMARK else watermark,
            state_rows=sum(each["numRowsTotal"] for each in operators),
            state_bytes=sum(each["memoryUsedBytes"] for each in operators),
            at=said["timestamp"],
        )


def read_progress(path: Path) -> list[FlowProgress]:
    """Return the last written progress of each flow."""
    known = {field.name for field in fields(FlowProgress)}
    return [
        FlowProgress(**{name: value for name, value in flow.items() if name in known})
        for flow in read_json(path) or ()
    ]


def _lag(sources: Any) -> int | None:
    """Count the unread records."""
    lag = 0
    for source in sources:
        latest, end = _numbers(source.get("latestOffset")), _numbers(source.get("endOffset"))
        if latest is None or end is None:
            return None
        lag += sum(max(0, offset - end.get(name, 0)) for name, offset in latest.items())
    return lag


def _numbers(offsets: Any) -> dict[tuple[str, str], int] | None:
    """Return offsets by topic and partition; None for offsets of another form."""
    if isinstance(offsets, str):
        offsets = json.loads(offsets)
    if not isinstance(offsets, dict):
        return None
    return {
        (topic, partition): offset
        for topic, numbers in offsets.items()
        if not topic.startswith("#") and isinstance(numbers, dict)
        for partition, offset in numbers.items()
    }
