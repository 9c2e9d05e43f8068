"""Targets of flows besides topics: directories of files and Delta tables, by connector sinks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from ottla.pipelines.connect.declaring.connector import Home, SinkConnector
from ottla.pipelines.connect.declaring.settings import SettingError, Values, read_settings
from ottla.pipelines.connect.delta_sink import DeltaSink
from ottla.pipelines.connect.files.files_sink import FilesSink
from ottla.pipelines.sink.writers import QUERY_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELTA: Final = "delta"


@dataclass(frozen=True, slots=True)
class Target:
    """A directory of files or a Delta table."""

    connector: type[SinkConnector]
    settings: Values

    def sink(self, name: str, checkpoint_id: str) -> SinkConnector:
        """Return the sink of a flow; micro-batches are numbered from 0 for each checkpoint id."""
        return self.connector(Home(name, Path(), checkpoint_id), self.settings)

    def write_once(self, name: str, rows: "DataFrame") -> None:
        """Add the rows of a batch that keeps no state."""
        self.sink(name, str(uuid4())).write(rows, 0)


class TargetWriter:
    """Writes the micro-batches of a query to a target, exactly once."""

    def __init__(self, name: str, target: Target) -> None:
        self._name = name
        self._target = target

    def __call__(self, rows: "DataFrame", batch_id: int) -> None:
        """Write a micro-batch, unless it was written before.

        A query's id belongs to its checkpoint: a new checkpoint begins with batch 0 again.
        """
        query_id = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        assert query_id, "Spark names its queries"
        self._target.sink(self._name, query_id).write(rows, batch_id)

    def close(self) -> None:
        """Do nothing: no resource stays open."""


def target(path: str, form: str, partition_by: Sequence[str]) -> Target:
    """Return a target. ValueError or ConnectorError for a wrong argument or a missing package."""
    kind: type[SinkConnector] = DeltaSink if form == DELTA else FilesSink
    given: dict[str, Any] = {"path": path, "partition.by": list(partition_by)}
    if form != DELTA:
        given["format"] = form
    try:
        found = Target(kind, read_settings(given, kind.SETTINGS))
    except SettingError as error:
        raise ValueError(f"{error.key}: {error.sentence}") from None
    found.sink("", "").check()
    return found
