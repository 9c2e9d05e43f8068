"""A pipeline: its sources, its transformations and its targets."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame

from ottla.pipelines.sessions import spark_session
from ottla.pipelines.source.decode_options import REGISTRY_NAMES
from ottla.pipelines.spark.spark_version import STREAMS, check_spark_version
from ottla.pipelines.streams.flow import FORMAT, Emit, Flow, Target
from ottla.pipelines.streams.stream import Origin, Stream
from ottla.pipelines.streams.table import UnreadTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_BROKERS: Final = "127.0.0.1:9092"
DEFAULT_REGISTRY: Final = "http://127.0.0.1:8081"
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
"""Valid names of pipelines and flows: they become directories."""


@dataclass(slots=True)
class Pipeline:
    """Streams and tables of one cluster, and the flows that lead from them to targets.

    A batch reads all existing records once; a query reads records as they arrive. The definition is
    the same.
    """

    name: str
    brokers: str = field(default_factory=lambda: os.environ.get("OTTLA_BROKERS", DEFAULT_BROKERS))
    is_batch: bool = False
    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark's settings."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the source and the sink, such as `kafka.client.id` or `maxOffsetsPerTrigger`."""
    is_quick: bool = False
    """Whether Spark starts sooner and computes slower."""
    registry: str = field(
        default_factory=lambda: os.environ.get("OTTLA_SCHEMA_REGISTRY_URL", DEFAULT_REGISTRY)
    )
    """The schema registry, for typed topics. `options` may have its other settings."""
    flows: list[Flow] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_name(self.name)

    @property
    def spark(self) -> "SparkSession":
        """The Spark session of the pipeline, created at first use."""
        return spark_session(
            self.name, master=self.master, settings=self.settings, is_quick=self.is_quick
        )

    def stream(
        self, topic: str, *, start: str = "earliest", options: Mapping[str, str] | None = None
    ) -> Stream:
        """Read the records of a topic, or of several topics, separated by commas.

        `start`, earliest or latest, applies to the first run of a flow. `options` are the options
        of the source.
        """

        def read(more: Mapping[str, str]) -> DataFrame:
            wanted = {**(options or {}), **more}
            return self.read(topic, is_static=self.is_batch, start=start, options=wanted)

        found = read({})
        return Stream(self, found, is_raw=True, origin=Origin(topic, found, read))

    def table(self, topic: str) -> UnreadTable:
        """Read a topic as a table: the newest record of each key."""
        return UnreadTable(self, topic)

    def read(
        self,
        topic: str,
        *,
        is_static: bool,
        start: str = "earliest",
        options: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """Return a topic as a batch DataFrame or as a streaming one."""
        if not is_static:
            check_spark_version(STREAMS, "reading topics as a stream")
        reader = self.spark.read if is_static else self.spark.readStream
        committed = {"kafka.isolation.level": "read_committed"}  # skip aborted records
        wanted = {"subscribe": topic, **committed, **self.options, **(options or {})}
        if "decode" not in wanted:
            wanted = {name: wanted[name] for name in wanted if name not in REGISTRY_NAMES}
        if not is_static:
            wanted["startingOffsets"] = start
        wanted["kafka.bootstrap.servers"] = self.brokers
        return reader.format(FORMAT).options(**wanted).load()

    def registry_options(self) -> dict[str, str]:
        """Return the options of sources and sinks for the schema registry."""
        own = {name: text for name, text in self.options.items() if name in REGISTRY_NAMES}
        return {"schema.registry.url": self.registry, **own}

    def add(
        self,
        topic: str,
        rows: DataFrame,
        emit: Emit,
        *,
        name: str | None = None,
        is_exactly_once: bool = True,
        target: Target | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Add a flow of rows; its name must be unique in the pipeline."""
        name = check_name(name or topic)
        if name in {flow.name for flow in self.flows}:
            raise ValueError(
                f"two flows are called {name!r}: name one, as in"
                " `.to(topic, name=…)`; how far it has come is kept under it"
            )
        self.flows.append(Flow(name, topic, rows, emit, is_exactly_once, target, options or {}))


def check_name(name: str) -> str:
    """Return the name. ValueError if it cannot be a directory's."""
    if not NAME.fullmatch(name) or Path(name).name != name:
        raise ValueError(f"{name!r} is no name: letters, digits, dot, dash and underscore are")
    return name
