"""Writes the archive of Spark's classes before the tests, unless there is one already.

python -m tests.pipelines.spark_classes

A JVM that starts without the archive records its classes until it ends: its start and end take 19
CPU seconds instead of 4. In a first `make test` every lane and every example would do so.
"""

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from ottla.pipelines.sessions import end_session, spark_session
from ottla.pipelines.spark.class_archive import class_archive
from ottla.pipelines.spark.java import JavaNotFoundError, find_java
from ottla.pipelines.spark.jvm import class_path


def is_missing() -> bool:
    """Return whether Spark's next JVM would record its classes."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return False
    jars = class_path((Path(spec.origin).parent / "jars").glob("*.jar"))
    try:
        return class_archive(find_java(), jars).unfinished is not None
    except JavaNotFoundError:
        return False


def record() -> None:
    """Run a stream with state in a JVM: it loads most of the classes that the tests need."""
    spark = spark_session("classes", master="local[2,4]", is_quick=True)
    with tempfile.TemporaryDirectory() as folder:
        letters = Path(folder, "letters")
        letters.mkdir()
        (letters / "1.json").write_text('{"n": 1}\n')
        rows = spark.readStream.schema("n long").json(str(letters))
        counts = rows.groupBy("n").count()
        query = counts.writeStream.format("memory").queryName("counts").outputMode("complete")
        query.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
        query.start().awaitTermination()
    end_session(spark)


if __name__ == "__main__":
    if is_missing():
        sys.stdout.write("Writing an archive of Spark's classes (once)…\n")
        record()
