"""Records as rows of PostgreSQL, by key, exactly once: rows and offset in one transaction.

Each task writes the records of some partitions. For each it locks the partition's offset, skips
records before it, copies the rest into a temporary table, and lets PostgreSQL read the JSON by the
target's own types. Tombstones delete. Fields that a record lacks keep their values.
"""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, ClassVar, Final

from ottla.pipelines.connect.declaring.connector import SinkConnector
from ottla.pipelines.connect.declaring.errors import ConnectorError
from ottla.pipelines.connect.declaring.settings import Setting, text, words, yes_or_no
from ottla.pipelines.connect.postgres.database import connected, conninfo_of
from ottla.pipelines.connect.postgres.rows import PostgresRows, Work
from ottla.pipelines.connect.postgres.source import DATABASE
from ottla.pipelines.connect.postgres.upserting import target_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OFFSETS: Final = """
CREATE TABLE IF NOT EXISTS ottla_connect_offsets (
    connector text, topic text, partition integer, next_offset bigint NOT NULL,
    PRIMARY KEY (connector, topic, partition)
)
"""
"""The table of written offsets per partition, beside the rows themselves."""


class PostgresSink(SinkConnector):
    """Upserts into one table per topic; the tables must exist."""

    NEEDS_FIELDS: ClassVar[bool] = False
    SETTINGS: ClassVar[tuple[Setting, ...]] = (
        *DATABASE,
        Setting("table.name.format", text, "${topic}", "the table of a topic"),
        Setting("pk.mode", text, "record_key", "where the key's columns are",
                ("record_key", "record_value")),
        Setting("pk.fields", words, (), "the key's columns; by default the table's primary key"),
        Setting("delete.enabled", yes_or_no, True, "whether tombstones delete rows"),
    )  # fmt: skip

    def check(self) -> None:
        """Check that the database and the tables of named topics exist."""
        with connected(conninfo_of(self.settings)) as connection:
            if not self.settings["topics"] or self.settings["table.name.format"] == "${topic}":
                return
            for topic in self.settings["topics"]:
                target_of(connection, self._work().table(topic), self.settings["pk.fields"])

    def write(self, batch: "DataFrame", batch_id: int) -> None:
        """Write a batch: all records of a partition in one task, in order."""
        del batch_id  # the stored offsets identify the written records
        with connected(conninfo_of(self.settings)) as connection:
            connection.execute(OFFSETS)
        ordered = (
            self._rows(batch)
            .repartition("origin", "partition")
            .sortWithinPartitions("origin", "partition", "offset")
        )
        batch.sparkSession.dataSource.register(PostgresRows)
        work = json.dumps(asdict(self._work()))
        ordered.write.format(PostgresRows.name()).option("work", work).mode("append").save()

    def _rows(self, batch: "DataFrame") -> "DataFrame":
        return batch.select(
            "origin",
            "partition",
            "offset",
            "topic",
            self._key(batch).alias("key"),
            _json(batch, "value").alias("value"),
        )

    def _key(self, batch: "DataFrame") -> "Column":
        from pyspark.sql import functions as f  # noqa: PLC0415

        fields = self.settings["pk.fields"]
        if self.settings["pk.mode"] == "record_value":
            return f.lit(None).cast("string")
        if self.settings["key.converter"] == "json":
            return _json(batch, "key")
        if len(fields) != 1:
            raise ConnectorError("pk.fields: a key that is no JSON needs the name of one column")
        return f.to_json(f.struct(f.col("key").cast("string").alias(fields[0])))

    def _work(self) -> "Work":
        settings = self.settings
        return Work(
            conninfo_of(settings),
            f"{self.home.name}/{self.home.id}",
            settings["table.name.format"],
            settings["pk.fields"],
            settings["pk.mode"] == "record_value",
            settings["delete.enabled"],
        )


def _json(batch: "DataFrame", name: str) -> "Column":
    from pyspark.sql import functions as f  # noqa: PLC0415
    from pyspark.sql.types import StructType  # noqa: PLC0415

    if isinstance(batch.schema[name].dataType, StructType):
        return f.to_json(name, {"ignoreNullFields": "false"})
    return f.col(name).cast("string")
