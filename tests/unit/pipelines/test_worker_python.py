"""The Python wrapper of Spark's workers: it removes only Spark's jar from the path."""

import json
import subprocess
import sys

import pytest

from ottla.pipelines.sessions import WORKER_PYTHON

JAR = "/opt/a place/jars/spark-core_2.13-4.3.0.jar"
SHOW = "import json, os, sys; print(json.dumps([os.environ['PYTHONPATH'], sys.argv[1:]]))"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("", ""),
        (JAR, ""),
        (f"{JAR}:/mine", "/mine"),
        (f"{JAR}:/mine:{JAR}:/two words:/*", "/mine:/two words:/*"),
        ("/mine:/jars/other.jar", "/mine:/jars/other.jar"),
    ],
)
def test_only_sparks_jar_is_taken_from_the_path(given: str, kept: str) -> None:
    done = subprocess.run(
        [WORKER_PYTHON, "-c", SHOW, "two words", "*"],
        env={"PYTHONPATH": given, "PYSPARK_REAL_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert json.loads(done.stdout) == [kept, ["two words", "*"]]
