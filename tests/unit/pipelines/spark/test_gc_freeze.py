"""Spark's Python workers freeze imported objects once per caller; other processes never do."""

import os
import subprocess
import sys

PROGRAM = """
import gc
from ottla.pipelines.spark.gc_freeze import spare_what_is_there

kept = []
counts = [gc.get_freeze_count()]  # CPython 3.12 freezes some objects when it starts
for caller in ("reads", "reads", "writes"):
    kept.append([[] for _ in range(1000)])
    spare_what_is_there(caller)
    counts.append(gc.get_freeze_count())
before, first, again, other = counts
print(first >= before + 1000, again <= first, other >= again + 1000)
"""


def said(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def test_a_process_of_sparks_spares_what_each_caller_has_imported_once() -> None:
    assert said(SPARK_REUSE_WORKER="1") == "True True True"


def test_other_processes_collect_as_ever() -> None:
    assert said(SPARK_REUSE_WORKER="") == "False True False"
