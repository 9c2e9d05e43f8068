"""The base classes of connectors: a short class for a source or for a sink.

class Shelf(SinkConnector):
    SETTINGS = (Setting("path", text, REQUIRED, "where the books go"),)

    def write(self, batch, batch_id):
        batch.select("value.*").write.mode("append").csv(self.settings["path"])
"""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ottla.pipelines.connect.declaring.settings import Setting, Values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Routes = tuple[tuple[str, str], ...]


def routed(topic: str, routes: Routes) -> str:
    """Return the name of a topic after replacements; `$1` is the first group of its pattern."""
    for pattern, replacement in routes:
        replaced = re.sub(r"\$(\d+)", r"\\\1", replacement)
        topic = re.sub(f"^(?:{pattern})$", replaced, topic)
    return topic


@dataclass(frozen=True, slots=True)
class Home:
    """A connector's own resources: its name, its directory, and the id of its checkpoint."""

    name: str
    folder: Path
    id: str
    routes: Routes = ()
    """The patterns of topics, and their replacements, of its transforms."""

    def routed(self, topic: str) -> str:
        """Return the topic that the transforms make of a source's topic."""
        return routed(topic, self.routes)


def local_url(path: Path) -> str:
    """Return a path as Spark takes it: nothing is escaped, as in `file:///out put/day=mon`."""
    return f"file://{path}"


class Connector:
    """The common part of sources and sinks: declared settings, and their parsed values."""

    SETTINGS: ClassVar[tuple[Setting, ...]] = ()

    def __init__(self, home: Home, settings: Values) -> None:
        self.home = home
        self.settings = settings

    def check(self) -> None:
        """Check the external systems without changes; a ConnectorError names the missing part."""


class SourceConnector(Connector, ABC):
    """Copies records from an external system into topics."""

    @abstractmethod
    def records(self, spark: "SparkSession") -> "DataFrame":
        """Return a stream with the column `value`, and optionally `key` and `topic`.

        Without the column `topic`, records go to the setting `topic`. A non-null column `error`
        marks a record that could not be read; the column `raw` then has its original bytes.
        """

    def topics(self) -> tuple[str, ...]:
        """Return the topics that are known before anything is read."""
        named = self.settings.get("topic")
        return (named,) if named else ()

    def is_encoding(self) -> bool:
        """Whether `records` gives values of a registered schema as bytes; fields are then gone."""
        return False

    def prepare(self) -> None:
        """Create the resources that the stream needs before it starts."""


class SinkConnector(Connector, ABC):
    """Copies records from topics to an external system, one micro-batch after the other."""

    NEEDS_FIELDS: ClassVar[bool] = True
    """Whether JSON is to be read into fields; without a `value.schema` they are then inferred."""

    @abstractmethod
    def write(self, batch: "DataFrame", batch_id: int) -> None:
        """Write a batch; after a crash the same batch may come again, with the same number.

        Its columns are `key`, `value`, `topic`, `partition`, `offset`, `timestamp`, and `origin`:
        the source topic, before transforms changed `topic`.
        """
