"""A pipeline: what is read, what becomes of it, and where it goes."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame

from ottla.pipelines.sessions import spark_session
from ottla.pipelines.streams.flow import FORMAT, Emit, Flow
from ottla.pipelines.streams.stream import Stream
from ottla.pipelines.streams.table import UnreadTable
from ottla.pipelines.streams.targets import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_BROKERS: Final = "127.0.0.1:9092"
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
"""What pipelines and flows may be called: their names become folders."""


@dataclass(slots=True)
class Pipeline:
    """Streams and tables of one cluster, and the flows that lead from them to topics.

    In a batch, everything that is there now is read once; else records are read as they come. The
    definition is the same.
    """

    name: str
    brokers: str = field(default_factory=lambda: os.environ.get("OTTLA_BROKERS", DEFAULT_BROKERS))
    is_batch: bool = False
    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """For Spark."""
    options: Mapping[str, str] = field(default_factory=dict)
    """For the source and the sink, as `kafka.client.id` or `maxOffsetsPerTrigger`."""
    is_quick: bool = False
    """Whether Spark is to start sooner and compute slower."""
    flows: list[Flow] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_name(self.name)

    @property
    def spark(self) -> "SparkSession":
        """The session that runs it, made when it is first used."""
        return spark_session(
            self.name, master=self.master, settings=self.settings, is_quick=self.is_quick
        )

    def stream(
        self, topic: str, *, start: str = "earliest", options: Mapping[str, str] | None = None
    ) -> Stream:
        """Read the records of a topic, or of several with commas between.

        `start` counts when a flow is run for the first time: earliest or latest. Options are
        those of the source.
        """
        read = self.read(topic, is_static=self.is_batch, start=start, options=options)
        return Stream(self, read, is_raw=True)

    def table(self, topic: str) -> UnreadTable:
        """Read a topic as a table: of each key, the newest record."""
        return UnreadTable(self, topic)

    def read(
        self,
        topic: str,
        *,
        is_static: bool,
        start: str = "earliest",
        options: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """Return a topic as a DataFrame, as it is or as it comes."""
        reader = self.spark.read if is_static else self.spark.readStream
        committed = {"kafka.isolation.level": "read_committed"}  # what aborted never was
        wanted = {"subscribe": topic, **committed, **self.options, **(options or {})}
        if not is_static:
            wanted["startingOffsets"] = start
        wanted["kafka.bootstrap.servers"] = self.brokers
        return reader.format(FORMAT).options(**wanted).load()

    def add(
        self,
        topic: str,
        rows: DataFrame,
        emit: Emit,
        *,
        name: str | None = None,
        is_exactly_once: bool = True,
        target: Target | None = None,
    ) -> None:
        """Add a flow of rows; its name must be the only one of its kind."""
        name = check_name(name or topic)
        if name in {flow.name for flow in self.flows}:
            raise ValueError(
                f"two flows are called {name!r}: give one of them a name, as in"
                " `.to(topic, name=…)`; how far it has come is kept under it"
            )
        self.flows.append(Flow(name, topic, rows, emit, is_exactly_once, target))


def check_name(name: str) -> str:
    """Return a name that can be a folder. ValueError if it cannot."""
    if not NAME.fullmatch(name) or Path(name).name != name:
        raise ValueError(f"{name!r} is no name: letters, digits, dot, dash and underscore are")
    return name
