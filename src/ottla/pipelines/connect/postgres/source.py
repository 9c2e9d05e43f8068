"""The connector that captures the changes of a PostgreSQL database."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from ottla.pipelines.connect.declaring.connector import SourceConnector
from ottla.pipelines.connect.declaring.errors import ConnectorError
from ottla.pipelines.connect.declaring.settings import (
    REQUIRED,
    Setting,
    text,
    whole,
    words,
    yes_or_no,
)
from ottla.pipelines.connect.postgres.avro_events import PARTS
from ottla.pipelines.connect.postgres.capture import (
    Capture,
    captured_tables,
    check,
    prepare,
)
from ottla.pipelines.connect.postgres.database import connected, conninfo_of
from ottla.pipelines.connect.postgres.events import Naming

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATABASE: Final = (
    Setting("connection.url", text, None, "where the database is, as postgresql://…"),
    Setting("database.hostname", text, None, "its host, if there is no URL"),
    Setting("database.port", text, None, "its port"),
    Setting("database.dbname", text, None, "its name"),
    Setting("database.user", text, None, "the role to connect as"),
    Setting("database.password", text, None, "its password"),
)


class PostgresSource(SourceConnector):
    """A snapshot of the tables, then each change in commit order, in Debezium's format."""

    SETTINGS: ClassVar[tuple[Setting, ...]] = (
        *DATABASE,
        Setting("topic.prefix", text, REQUIRED, "topics are called prefix.schema.table"),
        Setting("table.include.list", words, (), "patterns of schema.table; by default all tables"),
        Setting("slot.name", text, None, "the replication slot; by default after the connector"),
        Setting("publication.name", text, None, "the publication; by default after the connector"),
        Setting("publication.autocreate.mode", text, "filtered", "whether to make the publication",
                ("filtered", "disabled")),
        Setting("snapshot.mode", text, "initial", "whether to begin with the rows that are there",
                ("initial", "no_data")),
        Setting("tombstones.on.delete", yes_or_no, True, "whether deletes leave a tombstone"),
        Setting("skipped.operations", words, (), "operations that are left out: c, u, d, t"),
        Setting("max.batch.size", whole, 20_000, "how many changes make a batch"),
    )  # fmt: skip

    def check(self) -> None:
        """Check that the database supports change capture."""
        with connected(self._conninfo()) as connection:
            check(connection, self._capture())

    def prepare(self) -> None:
        """Create the publication, the slot and the snapshot."""
        prepare(self._capture())

    def topics(self) -> tuple[str, ...]:
        """Return the topics of the currently captured tables."""
        with connected(self._conninfo()) as connection:
            naming = Naming(self.settings["topic.prefix"], connection.info.dbname)
            tables = captured_tables(connection, self._capture())
        return tuple(naming.topic(table.schema, table.name) for table in tables)

    def records(self, spark: "SparkSession") -> "DataFrame":
        """Return the events: topic, key and value, each JSON or Avro."""
        from ottla.pipelines.connect.postgres.changes import PostgresChanges  # noqa: PLC0415

        spark.dataSource.register(PostgresChanges)
        capture = self._capture()
        events = (
            spark.readStream.format(PostgresChanges.name())
            .option("conninfo", capture.conninfo)
            .option("slot", capture.slot)
            .option("publication", capture.publication)
            .option("prefix", capture.prefix)
            .option("folder", capture.folder)
            .option("maxBatchSize", str(self.settings["max.batch.size"]))
            .option("skipped", ",".join(self.settings["skipped.operations"]))
            .options(**self._avro_options())
            .load()
        )
        if not self.settings["tombstones.on.delete"]:
            events = events.where("value IS NOT NULL")
        return events

    def is_encoding(self) -> bool:
        """Whether values are Avro with a schema that is made from the columns of the table."""
        return self.settings["value.converter"] == "avro" and self.settings["value.schema"] is None

    def _avro_options(self) -> dict[str, str]:
        if not self.is_encoding():
            return {}
        if self.settings["registry.url"] is None:
            raise ConnectorError("registry.url: is missing: where the schemas are")
        parts = [part for part in PARTS if self.settings[f"{part}.converter"] == "avro"]
        return {
            "avro": ",".join(parts),
            "registry": self.settings["registry.url"],
            "subject": self.settings["value.subject"] or "",
            "routes": json.dumps(self.home.routes),
        }

    def _capture(self) -> Capture:
        settings = self.settings
        ours = "ottla_" + "".join(c if c.isalnum() else "_" for c in self.home.name.lower())
        return Capture(
            self._conninfo(),
            settings["slot.name"] or ours,
            settings["publication.name"] or ours,
            settings["table.include.list"],
            settings["topic.prefix"],
            str(Path(self.home.folder, "snapshot")),
            settings["snapshot.mode"] == "initial",
            settings["publication.autocreate.mode"] == "filtered",
        )

    def _conninfo(self) -> str:
        return conninfo_of(self.settings)
