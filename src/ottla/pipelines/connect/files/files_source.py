"""Reads new files in a directory as records: JSON lines, CSV, Parquet. Each file is read once."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from ottla.pipelines.connect.declaring.connector import SourceConnector
from ottla.pipelines.connect.declaring.converters import CORRUPT, parsed_schema
from ottla.pipelines.connect.declaring.errors import ConnectorError
from ottla.pipelines.connect.declaring.settings import (
    REQUIRED,
    Setting,
    text,
    whole,
    words,
    yes_or_no,
)
from ottla.runtime.small_files import write_atomically

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMATS: Final = ("json", "csv", "parquet")
INFERRED: Final = "schema.json"


class FilesSource(SourceConnector):
    """Each line or row is a record; Spark's file source reads each file once."""

    SETTINGS: ClassVar[tuple[Setting, ...]] = (
        Setting("path", text, REQUIRED, "the directory in which files appear"),
        Setting("format", text, REQUIRED, "the format of the files", FORMATS),
        Setting("schema", text, None, "their fields; by default inferred from the first files"),
        Setting("key.fields", words, (), "the fields that make the key"),
        Setting("header", yes_or_no, True, "whether CSV files begin with names"),
        Setting("max.files.per.batch", whole, 1000, "how many files one batch has at most"),
        Setting("pattern", text, None, "which files are read, such as *.json"),
        Setting("format.", text, None, "further options of Spark's reader"),
    )

    def check(self) -> None:
        """Check that the directory exists."""
        path = self.settings["path"]
        if "://" not in path and not Path(path).is_dir():
            raise ConnectorError(f"path: there is no directory {path}")

    def records(self, spark: "SparkSession") -> "DataFrame":
        """Return the rows of new files; rows that do not fit the schema have an error."""
        from pyspark.sql import functions as f  # noqa: PLC0415

        self.check()
        schema = self._schema(spark)
        for name in self.settings["key.fields"]:
            if name not in schema.fieldNames():
                raise ConnectorError(f"key.fields: the files have no field {name!r}")
        rows = self._rows(spark, schema)
        columns = [f.struct(*schema.fieldNames()).alias("value")]
        if self.settings["key.fields"]:
            columns.append(f.struct(*self.settings["key.fields"]).alias("key"))
        if self.settings["format"] != "parquet":
            place = f.col("_metadata.file_path")
            file = f.concat(f.lit("a line does not fit the schema in "), place)
            columns.append(f.col(CORRUPT).alias("raw"))
            columns.append(f.when(f.col(CORRUPT).isNotNull(), file).alias("error"))
        return rows.select(*columns)

    def _rows(self, spark: "SparkSession", schema: "StructType") -> "DataFrame":
        from pyspark.sql.types import StructType  # noqa: PLC0415

        whole_schema = StructType([*schema.fields])
        if self.settings["format"] != "parquet":
            whole_schema = whole_schema.add(CORRUPT, "string")
        return (
            spark.readStream.format(self.settings["format"])
            .schema(whole_schema)
            .options(**self._options(), columnNameOfCorruptRecord=CORRUPT)
            .option("maxFilesPerTrigger", str(self.settings["max.files.per.batch"]))
            .load(self.settings["path"])
        )

    def _options(self) -> dict[str, str]:
        options = dict(self.settings["format."])
        if self.settings["format"] == "csv":
            options["header"] = str(self.settings["header"]).lower()
        if self.settings["pattern"]:
            options["pathGlobFilter"] = self.settings["pattern"]
        return options

    def _schema(self, spark: "SparkSession") -> "StructType":
        from pyspark.sql.types import StructType  # noqa: PLC0415

        if self.settings["schema"] is not None:
            return parsed_schema(self.settings["schema"], "schema")
        kept = self.home.folder / INFERRED
        if kept.exists():
            return StructType.fromJson(json.loads(kept.read_text(encoding="utf-8")))
        found = self._inferred(spark)
        write_atomically(kept, found.json())
        return found

    def _inferred(self, spark: "SparkSession") -> "StructType":
        from pyspark.errors import AnalysisException  # noqa: PLC0415

        reader = spark.read.format(self.settings["format"]).options(**self._options())
        try:
            found = reader.option("inferSchema", "true").load(self.settings["path"]).schema
        except AnalysisException as error:
            raise ConnectorError(
                f"schema: is missing, and cannot be inferred from {self.settings['path']}:"
                f" {str(error).splitlines()[0]}"
            ) from None
        if not found.fields:
            raise ConnectorError(
                f"schema: is missing, and {self.settings['path']} has no files yet"
            )
        return found
