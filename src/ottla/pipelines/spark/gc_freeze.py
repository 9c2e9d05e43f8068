"""Prevents garbage collection from scanning all objects after each task in Spark's Python."""

import gc
import os
from functools import cache
from typing import Final

_COLLECTS: Final = "SPARK_REUSE_WORKER"
"""Set by Spark in processes that serve one task after another, with a collection after each."""


@cache
def spare_what_is_there(caller: str) -> None:
    """Exclude the present objects from further collections, once per caller with its imports.

    A collection scans everything that PySpark, Arrow and Ottla have imported, which takes longer
    than the tasks of a micro-batch. Reference counting still frees excluded objects; only cycles
    that are garbage at this moment stay. Processes that are not Spark's are left alone.
    """
    del caller
    if os.environ.get(_COLLECTS):
        gc.freeze()
